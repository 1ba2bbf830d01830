-- Every job has entries of the kinds that are left out: a listing of one of them finds them on its way through the
-- history, and no submission, claim or completion has to write into this index.
DROP INDEX history_of_kind;
CREATE INDEX history_of_kind ON history (what, entry) WHERE what NOT IN ('submitted', 'claimed', 'completed');
