"""Logic and programs: satisfiable formulas, inputs to abduce, programs to deduce."""
