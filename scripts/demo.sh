#!/usr/bin/env bash
# Trains the Fashion-MNIST example, from whatever state the machine is in.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh
scripts/build.sh 02_fashion_mnist
# Two processes, each with half of a batch of 64.
exec "$BUILD/bin/02_fashion_mnist" --root "${LEVIN_DATA:-data}" --devices 2 --batch-size 32 "$@"
