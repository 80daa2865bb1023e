"""What is trained: tiny policies, or any causal language model, and the tasks that they learn. Knows nothing of rlviz.

In: a name or a folder (`policies.load_policy`), a task (`tasks.TASKS`) and its prompts as text. Out: responses as tensors
(`sampling.sample`), their log-probabilities with gradient (`sampling.response_logits`), grades, preference pairs (`pairs`) and
scores of critics and reward models (`scorers`). Begin with `decoder`, the transformer itself, then `sampling` and `tasks.base`.
"""
