"""Two methods, a task, an attack and a command for tfrnet."""
