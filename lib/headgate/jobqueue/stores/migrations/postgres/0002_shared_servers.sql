-- A server that several pools name, as each but the first names it: a JSON array of rows as the columns before `number`.
ALTER TABLE resources ADD COLUMN also text NOT NULL DEFAULT '[]';
