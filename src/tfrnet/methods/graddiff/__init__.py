"""The method GradDiff."""
