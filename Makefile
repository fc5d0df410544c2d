# The two commands of the first minute are `make demo` and `make test`; the work is in scripts/.
.PHONY: help setup build xla libtpu demo test check lint format sanitize sanitize-all sanitize-embedded fuzz oracle oracle-check bench docs gpu-pack gpu-check install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      train on Fashion-MNIST, from a bare machine on  (ARGS='--max-epochs 1')"
	@echo "make test      build everything and run every check, as CI does"
	@echo
	@echo "make check     build everything and run the tests that take seconds"
	@echo "make setup     compilers, libraries and LibTorch  (LEVIN_LIBTORCH=DIR uses yours)"
	@echo "make build     the library, the levin command and the examples, into build/"
	@echo "make xla       as make build, with XLA for CPUs, GPUs and TPUs"
	@echo "make libtpu    fetch Google's compiler for TPUs, by which levin xla check works without one"
	@echo "make lint      clang-format on all files, clang-tidy on changed ones  (LINT_BASE=REV)"
	@echo "make format    let clang-format rewrite the files"
	@echo "make sanitize  address and undefined-behaviour sanitizers on the rooms without LibTorch"
	@echo "make sanitize-all  those on the rooms with LibTorch, and the thread sanitizer on comm and the loader; slow"
	@echo "make sanitize-embedded  the address sanitizer on all of liblevin, by a program that embeds it; slow"
	@echo "make fuzz      fuzzers of whatever reads files of others, by clang  (SECONDS=60 each)"
	@echo "make oracle    make the golden files of tests/oracle anew with Python's peers"
	@echo "make oracle-check  compare them with what the peers compute now"
	@echo "make bench     benchmarks, and the same work in PyTorch, Lightning and Accelerate"
	@echo "make docs      the API reference of the public headers, by doxygen, into docs/api/"
	@echo "make gpu-check checks and measures levin on the GPU of this machine, without network  (ARGS='--seconds 480')"
	@echo "make gpu-pack  the headers that make gpu-check needs and another machine may lack, into .gpu_pack/"
	@echo "make install   PREFIX=DIR: headers, library and the CMake package levin"
	@echo "make clean     remove what was built; .deps/ stays"

setup:
	@scripts/setup.sh all

build:
	@scripts/setup.sh
	@scripts/build.sh

xla:
	@scripts/setup.sh xla
	@scripts/build.sh

libtpu:
	@scripts/setup.sh libtpu

demo:
	@scripts/demo.sh $(ARGS)

test:
	@scripts/test.sh $(ARGS)

check:
	@scripts/setup.sh all
	@scripts/build.sh --all
	@ctest --test-dir build -L quick -j "$$((2 * $$(nproc || echo 2) + 1))" --output-on-failure

lint:
	@scripts/lint.sh

format:
	@scripts/lint.sh --fix

sanitize:
	@scripts/sanitize.sh

sanitize-all:
	@scripts/sanitize_all.sh

sanitize-embedded:
	@scripts/sanitize.sh embedded

fuzz:
	@scripts/fuzz.sh $(SECONDS)

oracle:
	@scripts/oracle.sh make

oracle-check:
	@scripts/oracle.sh check

bench:
	@scripts/bench.sh $(ARGS)

docs:
	@scripts/docs.sh

gpu-check:
	@scripts/gpu_check.sh $(ARGS)

gpu-pack:
	@scripts/setup.sh all
	@scripts/gpu_pack.sh

install:
	@scripts/install.sh '$(PREFIX)'

clean:
	rm -rf build build-sanitize build-embedded build-fuzz build-asan build-tsan build-gpu
