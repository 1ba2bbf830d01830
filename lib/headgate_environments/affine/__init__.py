"""Logic and programs: satisfiable formulas, inputs to be abduced, outputs to be deduced."""
