"""A transformer is trained with `tierflow.torch.offload`. On a GPU, as many tensors leave as copies hide, elsewhere as a budget says.

python train_offload.py                              # a small one, on the processor
python train_offload.py --device cuda --width 2048 --layers 16 --length 8192
"""

import argparse

import torch
from torch import nn

import tierflow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--budget", help="bytes of saved tensors that may stay, such as 2GiB")
    parser.add_argument("--host-cache", default="1GiB")
    options = parser.parse_args()
    budget = options.budget or (None if options.device != "cpu" else "4MiB")

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        options.width, 4, 4 * options.width, dropout=0.0, batch_first=True, norm_first=True
    )
    model = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(4, options.length, options.width, device=options.device)

    with tierflow.Engine(device=options.device, host_cache=options.host_cache) as engine:
        saving = tierflow.torch.offload(engine, budget)
        for step in range(options.steps):
            with saving:
                loss = (model(batch) - batch.roll(1, dims=1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step}: {loss.item():.4f}  {saving!r}")
        stored = engine.metrics()["produce"]
        print(f"{stored['count']} tensors of {stored['bytes'] >> 20} MiB left and came back")


if __name__ == "__main__":
    main()
