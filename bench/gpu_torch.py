#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch takes for a 128x128 block quantization of the matrix that gpu_bench times, compiled where Triton is."""
import torch

ROWS, COLS, BLOCK = 8192, 7168, 128


def quantize(weight):
    tiles = weight.view(ROWS // BLOCK, BLOCK, COLS // BLOCK, BLOCK).float()
    amax = tiles.abs().amax(dim=(1, 3), keepdim=True)
    scale = torch.where(amax == 0, torch.ones_like(amax), 448.0 / amax)
    return (tiles * scale).to(torch.float8_e4m3fn).view(ROWS, COLS), 1.0 / scale.view(ROWS // BLOCK, COLS // BLOCK)


def microseconds(function, inputs):
    for one in inputs:
        function(one)
    times = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for one in inputs:
            function(one)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(inputs))
    return sorted(times)[len(times) // 2]


def main():
    inputs = [torch.randn(ROWS, COLS, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    rows = [("torch, eager", quantize)]
    try:
        compiled = torch.compile(quantize)
        compiled(inputs[0])
        rows.append(("torch.compile (Triton)", compiled))
    except Exception as reason:  # no Triton, no compiler: the eager row stands alone
        print(f"torch.compile: left out: {type(reason).__name__}")
    for name, function in rows:
        took = microseconds(function, inputs)
        print(f"{name:40} {took:10.1f} us {ROWS * COLS * 3.0002 / took / 1e3:10.0f} GB/s")


if __name__ == "__main__":
    main()
