"""What any run can be shown as: tables, figures, traces, reports and comparisons."""
