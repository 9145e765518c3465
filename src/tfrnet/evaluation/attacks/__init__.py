"""The attacks on an unlearned model. Every file here is one."""
