"""Tables, figures, traces, comparisons and reports, all of them made from runs alone."""
