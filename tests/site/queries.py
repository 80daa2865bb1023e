"""What people type, and the entry that answers it: (query, the title's beginning, among how many first results)."""

THREADS = (  # the words of the public threads behind the symptoms, as their askers would type them
    ("why does loss start at 0 and then increase", "The loss is 0", 2),  # trl #2703
    ("grpo loss negative is it normal", "The loss is negative", 1),  # ms-swift #3579
    ("clip_ratio always zero", "The ratio is always 1, the clip fraction is 0", 1),  # trl #3120
    ("ratio is always 1 clip does nothing", "The ratio is always 1, the clip fraction is 0", 1),  # minimind #775
    ("KL divergence is starting to become negative: -0.18", "The KL is negative", 1),  # trl #351
    ("negative KL-divergence", "The KL is negative", 1),  # trl #925
    ("pre-finetuned LoRA model as reference", "The KL is large at the first step", 3),  # trl #3194, #3196
    ("rewards std is not 0 but reward_std 0 and loss 0", "reward_std is 0", 2),  # trl #3857
    ("loss and grad_norm always 0", "All groups have the same reward", 5),  # ms-swift #4570
    ("rewards/accuracy_reward: 0.0", "The reward stays at 0", 2),  # open-r1 #255
    ("completions/clipped_ratio 1.0", "All responses are cut off", 1),  # ms-swift #4950
    ("grad_norm is NaN with 4 GPUs", "Loss or gradient is NaN", 1),  # verl #2505
    ("rollout-training mismatch vllm", "Old and new log-probabilities differ", 3),  # trl #3867
    ("vLLM not computing correct log probs temperature", "The importance ratio is 2", 3),  # trl #4159
    ("gradient accumulation performance drop", "Gradient accumulation changes the result", 1),  # trl #3021
    ("global batch size must be divisible by the number of generations", "How many prompts", 1),  # trl #2858
    ("GSPO actor/pg_clipfrac 0.4", "GSPO's ε is tiny", 1),  # verl #7356
    ("chosen rewards gradually decrease dpo", "In DPO the chosen response", 1),  # DPO #32
    ("ValueError: num_gen_batches >= max_num_gen_batches", '"Generated too many', 1),  # verl #1108
    ("rollout routing replay moe", "In a mixture of experts", 1),  # Megatron-LM #4256
)
OTHERS = (
    ("clip_ratio", "The ratio is always 1, the clip fraction is 0", 3),
    ("frac_reward_zero_std", "All groups have the same reward", 1),
    ("numIterations", "passes over a rollout", 1),
    ("动态采样", "Dynamic sampling", 1),
    ("GRPO训练中Loss和grad_norm一直为0", "The loss is 0", 1),  # ms-swift #4570
    ("!!!!!", "Loss or gradient is NaN", 1),
    ("no kl in wandb", "There is no KL in the log", 1),
    ("entropy collapse", "The entropy collapses", 3),
    ("entrpy colapse", "The entropy collapses", 3),
    ("trajectoryy", "Trajectory", 3),
    ("samqling dynamic", "dynamic sampling", 3),
    ("ppo_mini_batch_size", "parts of a rollout", 3),
    ("2503.14476", "DAPO", 3),
    ("reinforce++", "REINFORCE++", 1),
    ("lora learning rate", "LoRA learns nothing", 1),
    ("log derivative trick", "The log-derivative trick", 3),
    ("when does clipping stop a token", "When does clipping stop a token", 1),
)
RESUMED = "A resumed run begins worse than it ended"
UNREACHED = "Gradient 0 although the rewards differ"
BOTH_LANGUAGES = (  # the same questions as English and as Chinese askers type them
    ("grpo训练400step整体性能变差，KL骤增", "The KL explodes", 1),  # ms-swift #6550
    ("resume from checkpoint score is lower", RESUMED, 1),
    ("grpo断点续训的critic/mean/score骤降", RESUMED, 1),  # verl #3754
    ("grad_norm is 0 but reward_std is not", UNREACHED, 1),
    ("GRPO训练中的grad norm一直为0 , 但是reward_std和reward都正常", UNREACHED, 3),  # ms-swift #5890
    ("异步训练 陈旧", "Staleness", 1),
    ("warmup_ratio", "Warm-up", 2),
    ("lr_warmup_steps_ratio", "warm-up of the learning rate", 1),
    ("chatgpt", "RLHF", 1),
    ("裁剪", "Clip", 1),
    ("熵一直下降", "The entropy collapses", 3),
    ("loss 为负数正常吗", "The loss is negative", 1),  # ms-swift #3579
    ("chosen_reward和rejected_reward都是负数，而且越来越小", "In DPO the chosen response", 1),  # OpenRLHF #1054
    ("输出全是感叹号", "Loss or gradient is NaN", 1),  # verl #751
)
HELD_OUT = (  # written before the ranking was tuned, and never tuned on
    ("Strange DPO loss pattern: log probability of both keeps decreasing", "In DPO the chosen response", 3),  # trl #800
    ("vllm_importance_sampling_ratio explosion", "Old and new log-probabilities differ", 3),  # trl #4772
    ("tokenization mismatch multi-turn tool_calls", "Tool output is in the loss", 3),  # verl #3720, #3960
    ("entropy keeps increasing and performance drops", "The entropy rises", 3),  # verl #2738
    ("z-score for each reward multi-reward", "Several rewards on different scales", 3),  # flow_grpo #188
)
NOTHING = ("oom", "quantum", "advnatgae", "???", "docker", "显存不够")  # of which the site says nothing
