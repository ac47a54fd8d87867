"""A small reinforcement learning: which of four answers belongs to a digit, learnt from rewards alone."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import digits, mlp
from torch.distributions import Categorical

import tensortap
from tensortap.pytorch import Hook


def train_policy(
    out_dir: Path,
    rules: Sequence[str],
    *,
    lr: float,
    epochs: int = 1,
    updates: int = 40,
    entropy_bonus: float = 0.0,
    has_reward: bool = True,
) -> Hook:
    """PPO without a value function: the advantage of an answer is its reward against its group's of eight."""
    images, labels = digits()
    policy = mlp(64, 32, 4)
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    hook = tensortap.watch(policy, optimizer, out_dir=out_dir, rules=rules)
    generator = torch.Generator().manual_seed(0)
    for _ in range(updates):
        chosen = torch.randint(len(images), (64,), generator=generator)
        with torch.no_grad():
            logits = policy(images[chosen])
            answers = torch.multinomial(
                logits.softmax(-1), 8, replacement=True, generator=generator
            )
            old = logits.log_softmax(-1).gather(1, answers)
        rewards = (answers == (labels[chosen] % 4)[:, None]).float() * float(has_reward)
        spread = rewards.std(1, keepdim=True)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (spread + 1e-4)
        for epoch in range(epochs):
            optimizer.zero_grad()
            logits = policy(images[chosen])
            log_ratio = logits.log_softmax(-1).gather(1, answers) - old
            entropy = Categorical(logits=logits).entropy().mean()
            gain = torch.minimum(
                log_ratio.exp() * advantages, log_ratio.exp().clamp(0.8, 1.2) * advantages
            )
            loss = -gain.mean() - entropy_bonus * entropy
            if epoch == epochs - 1:
                hook.save_scalar("train/entropy", entropy.item())
                hook.save_scalar("train/approx_kl", (log_ratio.exp() - 1 - log_ratio).mean().item())
                hook.save_scalar("frac_reward_zero_std", (spread == 0).float().mean().item())
                hook.save_scalar("reward", rewards.mean().item())
            loss.backward()
            optimizer.step()
    hook.close()
    return hook
