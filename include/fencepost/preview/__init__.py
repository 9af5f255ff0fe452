"""Shows what a run would make of records and what was made of them: trial, judge, suggest, diff, trace. It changes nothing."""
