# Verbs in front of Meson. `make` builds build/phidelity and installs nothing; demo and check first
# install what is missing (scripts/deps.sh). CC, MESON_FLAGS and BUILD can be set from outside:
#   make check CC=clang BUILD=build-clang
BUILD ?= build
MESON_FLAGS ?=
FUZZ_SECONDS ?= 600
ifneq ($(origin CC),default)
export CC
endif
PROGRAM = $(BUILD)/phidelity

.PHONY: all deps demo-deps demo check check-oracle bench lint fuzz asan-check tsan-check clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@scripts/deps.sh check
	meson setup $(BUILD) $(MESON_FLAGS)

deps:
	@scripts/deps.sh install

demo-deps:
	@scripts/deps.sh install demo

demo: demo-deps all
	@scripts/demo.sh $(PROGRAM)

check: deps all
	@scripts/run_tests.sh $(BUILD)

# Against transformers and tokenizers, in a Python environment of its own (.venv-oracle).
check-oracle: deps all
	@scripts/oracle.sh $(BUILD)

bench: deps all
	@meson test -C $(BUILD) --benchmark --verbose --num-processes 1

lint:
	@scripts/lint.py
	@scripts/analyse.sh

asan-check: deps
	@test -f build-asan/build.ninja || meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-asan
	@UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 scripts/run_tests.sh build-asan --timeout-multiplier 5

tsan-check: deps
	@test -f build-tsan/build.ninja || meson setup build-tsan -Db_sanitize=thread -Db_lundef=false
	@ninja -C build-tsan
	@TSAN_OPTIONS=halt_on_error=1 scripts/run_tests.sh build-tsan --timeout-multiplier 10

fuzz: deps
	@test -f build-fuzz/build.ninja || CC=clang meson setup build-fuzz -Dfuzzer=true \
	    -Db_sanitize=address,undefined -Db_lundef=false
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

clean:
	rm -rf $(BUILD) build-asan build-tsan build-fuzz
