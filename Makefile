# Every step of working on linkcpp as one command; the real build is CMake's (CMakePresets.json).

prefix  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc)
LABELS  ?=
TESTS   ?=

build := build/release
sources = $(shell find src tests tools -name '*.h' -o -name '*.cpp' | sort)
given = $(if $(LINKCPP_LLAMA_DIR),-DLINKCPP_LLAMA_DIR="$(abspath $(LINKCPP_LLAMA_DIR))") \
        $(if $(LINKCPP_CPU),-DLINKCPP_CPU="$(LINKCPP_CPU)")

.DEFAULT_GOAL := help
.PHONY: help demo demo-122b test build worker-aarch64 install uninstall format lint check clean bootstrap configure

help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
	@echo
	@echo "  Variables: prefix=$(prefix) DESTDIR= JOBS=$(JOBS)"
	@echo "             LABELS=regex TESTS=regex        which tests run"
	@echo "             LINKCPP_LLAMA_DIR=folder        build against this llama.cpp instead of the pinned one"
	@echo "             LINKCPP_CPU=native|portable     for this CPU only, or for any of its architecture"

demo: build ## build, then show a hub, three workers that find their slices, and a decode
	scripts/demo $(build)/bin

demo-122b: build ## the geometry of Qwen3.5-122B-A10B: a worker with a 1.57 GB slice in a decode
	cmake --build --preset release -j $(JOBS) --target linkcpp-make-model
	scripts/demo-122b $(build)/bin

test: bootstrap configure ## build everything and run the tests (LABELS=regex TESTS=regex to choose)
	cmake --build --preset release -j $(JOBS)
	ctest --preset release $(if $(LABELS),-L "$(LABELS)") $(if $(TESTS),-R "$(TESTS)")

build: bootstrap configure ## build the programs, without the tests
	cmake --build --preset release -j $(JOBS) --target programs

worker-aarch64: ## build the worker for 64-bit ARM phones and boards, as one static file
	@scripts/bootstrap --aarch64
	@$(if $(strip $(given)),,test -f build/aarch64/build.ninja ||) cmake --preset aarch64 $(given)
	cmake --build --preset aarch64 -j $(JOBS)
	@ls -l build/aarch64/bin/linkcpp-expert-worker

# Under sudo nothing is built, so that no file in the build folder comes to belong to root.
install: $(if $(SUDO_USER),,build) ## install into prefix (DESTDIR= for packages)
	DESTDIR="$(DESTDIR)" cmake --install $(build) --prefix "$(abspath $(prefix))"

uninstall: ## remove what install put there
	for link in "$(DESTDIR)$(prefix)"/bin/*; do \
	  case "$$(readlink "$$link")" in ../lib/linkcpp/*) rm -v "$$link" ;; esac; done
	rm -rf "$(DESTDIR)$(prefix)/lib/linkcpp" "$(DESTDIR)$(prefix)/share/doc/linkcpp"

format: ## lay out all sources with clang-format
	scripts/bootstrap --format
	clang-format -i $(sources)

lint: configure ## look for mistakes with clang-tidy
	scripts/bootstrap --lint
	run-clang-tidy -quiet -j $(JOBS) -p $(build) '^$(CURDIR)/(src|tests)/'

check: ## what CI checks without compiling: includes, links and words, layout
	scripts/bootstrap --format
	scripts/check-includes
	scripts/check-house
	clang-format --dry-run --Werror $(sources)

clean: ## remove the builds, but not the fetched sources of llama.cpp
	rm -rf build/release build/asan build/tsan build/aarch64

bootstrap:
	@scripts/bootstrap

# Ninja configures again by itself when a CMake file changed; what was given on the command line has to be passed on.
configure: bootstrap
	@$(if $(strip $(given)),,test -f $(build)/build.ninja ||) cmake --preset release $(given)
