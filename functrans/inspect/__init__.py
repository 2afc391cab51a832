"""Looking at programs: running them side by side, step by step; what they cost; pictures."""
