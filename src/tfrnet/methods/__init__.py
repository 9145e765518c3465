"""The unlearning methods. Every file or folder here is one."""
