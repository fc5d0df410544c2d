"""DeepSpeed over gloo, started by torchrun; --mode 1, 2 or 3: that stage of ZeRO (0 without)."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"  # or it looks for one and warns

import deepspeed
import torch.distributed as dist

import work

# Its all-reduce in shared memory serves inference alone: training's goes over gloo, whether it is
# there or not. Without this line the first run compiles it, and one that was interrupted there
# leaves a lock that later runs wait for in silence.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def main():
    arguments = work.arguments()
    deepspeed.init_distributed("gloo", verbose=False)
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    engine, *_ = deepspeed.initialize(
        model=net, optimizer=job.optimizer(net.parameters(), lr=job.lr),
        config={"train_micro_batch_size_per_gpu": job.batch_size,
                "gradient_accumulation_steps": arguments.accumulate,
                "gradient_clipping": 0.0,  # else it clips to 1.0, which no other here does
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": int(arguments.mode or 0)},
                "steps_per_print": 2**31 - 1})
    for x, y in job.batches(clock.last, dist.get_rank()):
        clock()
        loss = job.loss(engine, x, y)
        engine.backward(loss)
        engine.step()
        clock.keep(loss)
    if dist.get_rank() == 0:
        clock.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
