# SPDX-License-Identifier: GPL-2.0-only
#
# The commands of this checkout. `make` alone lists them. The two that a newcomer needs are
# `make evaluate` and `make test`; both install what the machine lacks (scripts/setup) and say so.
#
# Parts add themselves by a Makefile.inc of their own, which appends to
#   PROGRAMS       workloads, examples and lab tests; linked statically, they run in the lab's guest
#   LIBRARIES      libtrapless
#   UNIT_PROGRAMS  C unit tests, $(BUILD)/tests/unit/NAME; `make check` runs each under sanitizers
# and writes its rules for files under $(BUILD), with $(CC), $(ALL_CFLAGS) and, when linking a
# program, $(STATIC).

BUILD ?= build
PREFIX ?= /usr/local
CC = gcc
CFLAGS ?= -O2 -g
WARNINGS = -Wall -Wextra -Werror -Wmissing-prototypes -Wstrict-prototypes -Wshadow
INCLUDES = -Iinclude -Iinclude/uapi
SANITIZE =
STATIC = -static
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE $(WARNINGS) $(INCLUDES) $(SANITIZE) $(CFLAGS) -MMD -MP
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

PYTHON = .venv/bin/python
# Without bytecode every process of pytest would compile and rewrite all tests again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(PYTHON) -m pytest
TRAPLESS = bin/trapless

# make splits lists at spaces, in names of files too.
ifneq ($(words x$(BUILD) x$(DESTDIR) x$(PREFIX)),3)
$(error BUILD, DESTDIR and PREFIX must have no spaces: '$(BUILD)', '$(DESTDIR)', '$(PREFIX)')
endif

# What newcomers build says what it made; V=1 shows the commands, too.
SHORT_OPTIONS := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
ifeq ($(V)$(filter-out lib workloads examples,$(MAKECMDGOALS)),)
.SILENT:
ifeq ($(findstring s,$(SHORT_OPTIONS))$(filter-out workloads,$(or $(MAKECMDGOALS),help)),)
$(info building: a minute or two the first time; V=1 shows the commands)
endif
endif
made = $(if $(filter $@,$(MAKECMDGOALS)),$(if $(findstring s,$(SHORT_OPTIONS)),,@echo "$(1)"))

PROGRAMS =
LIBRARIES =
UNIT_PROGRAMS =

.PHONY: help evaluate test check static lab matrix matrix-all lab-debug soak soak-debug all lib
.PHONY: setup setup-tests
.PHONY: install deb uninstall clean site pictures image-check packages-test report-check fuzz coverage
help: ## this list
	@echo "Trapless $(VERSION): system calls without the trap, on the kernel you already run"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | \
		awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo "  bin/trapless --help    the command itself"

-include lib/Makefile.inc
-include lib/bindings/python/Makefile.inc
-include sampler/Makefile.inc
-include model/Makefile.inc
-include stat/Makefile.inc
-include $(wildcard eval/*/Makefile.inc eval/*/workload/Makefile.inc eval/tools/*/Makefile.inc)
-include examples/Makefile.inc
-include tests/unit/Makefile.inc
-include tests/abi/Makefile.inc
-include tests/lab/Makefile.inc
-include tests/coverage/Makefile.inc tests/fuzz/Makefile.inc
-include $(wildcard $(addsuffix .d,$(basename $(PROGRAMS) $(UNIT_PROGRAMS))))
# A .d file may name a source that has moved since: what depended on it is built again.
%.c: ;
.SUFFIXES:

# Said before anything is done; evaluate.py's announcement() says it of the chosen experiments.
ABOUT_EVALUATE = experiments (quick) in VMs of a stock kernel: 6 to 15 min on 2 idle cores; \
	installs what this machine lacks, and fetches a kernel and programs to run (215 MB)

evaluate: about-evaluate setup ## measure on a stock kernel in a lab VM and write a report (newcomers start here)
	@$(TRAPLESS) evaluate --quick

.PHONY: about-evaluate
about-evaluate:
	@echo "$(ABOUT_EVALUATE)"

VMS ?= 3
LEFT_OUT = not nightly$(if $(CI),, and not long)
test: setup-tests ## prove it: static, all tests, the module's on every supported kernel; VMS (3) at once
	@$(MAKE) --no-print-directory static
	$(PYTEST) -n $(VMS) --once-more -m '$(LEFT_OUT)' tests/evaluate tests/lab \
		tests/packages tests/unit tests/abi --kernels all --tools-once

# It builds by gcc, and only what its tests run: `static` builds everything, by both compilers.
check: setup-tests ## under a minute, no VM, no root: style, types, unit and ABI tests, C under sanitizers
	@$(MAKE) --no-print-directory -s -j2 types $(BUILD)/compiled sanitized checked style
	@$(PYTEST) -q -n 3 -m 'not slow' tests/unit tests/abi # on two cores: some of the tests wait

static: setup-tests ## what needs no run: both compilers build everything; style, types (2 min)
	@$(MAKE) --no-print-directory -s -j2 all
	@$(MAKE) --no-print-directory -s -j2 BUILD=build/clang CC=clang all
	@$(MAKE) --no-print-directory -s -j2 types sanitized style

lab: setup-tests ## the lab tests in VMs on the default kernel
	@$(MAKE) --no-print-directory -s all
	$(PYTEST) tests/lab

RESETS = 20
FUZZ_S = 300
MATRIX = tests/evaluate tests/lab --kernels all --resets $(RESETS)
matrix: setup-tests ## the lab tests on every supported kernel, with those of tools and nightly ones
	@$(MAKE) --no-print-directory -s all
	TL_FUZZ_S=$(FUZZ_S) $(PYTEST) -n $(VMS) $(MATRIX)

MODULE_TESTS = tests/lab/runner tests/lab/supervisor
RDMA_TESTS = tests/lab/peek/remote/test_peek_rdma.py
RANDOM_PROGRAMS = tests/lab/lib/test_lab_random_programs.py --programs 100000
lab-debug: setup-tests ## the module's tests on a KASAN and lockdep kernel (built once, into the cache)
	@$(MAKE) --no-print-directory -s all
	$(PYTEST) -n $(VMS) $(MODULE_TESTS) $(RANDOM_PROGRAMS) --kernels debug

matrix-all: setup-tests ## matrix, and the module's tests on debug, KCSAN, kCFI, PREEMPT_RT and cloud kernels
	@$(MAKE) --no-print-directory -s all
	TL_FUZZ_S=$(FUZZ_S) $(PYTEST) -n $(VMS) $(MATRIX)
	$(PYTEST) -n $(VMS) $(MODULE_TESTS) --kernels others,debug,kcfi,kcsan
	$(PYTEST) $(RDMA_TESTS) --kernels debug
	$(PYTEST) -n $(VMS) tests/lab/runner/test_lab.py -k behaviour --emulator bochs --kernels 6.12,newest

image-check: setup-tests ## images of every kernel, booted by BIOS and UEFI, from a stick and a CD (hours)
	@$(MAKE) --no-print-directory -s all
	$(PYTEST) -n $(VMS) tests/image --grid

packages-test: setup-tests ## packages, pip and a checkout as people install them, in clean Debian 12 and 13 (20 min)
	$(PYTEST) tests/packages --debian all

report-check: setup-tests ## the report in a browser: axe, phone, paper (needs chromium and npm; 2 min)
	$(PYTEST) tests/browser

MINUTES ?= 10
SEED ?= 1
OBSERVER_MINUTES ?= 30
FILES_MINUTES ?= 30
soak: setup-tests all sanitized ## the module (MINUTES, 10), files (FILES_MINUTES, 30), readers (OBSERVER_MINUTES, 30)
	@$(PYTHON) -m tests.lab.supervisor.soak --minutes $(MINUTES)
	@PYTHONPATH=lib/bindings/python $(PYTHON) -m tests.packages.async_files.files_soak \
		--minutes $(FILES_MINUTES)
	@$(PYTHON) -m tests.fuzz.observer.observer_fuzz --minutes $(OBSERVER_MINUTES) --seed $(SEED)

soak-debug: setup-tests ## probes and supervisor mode on the KASAN and lockdep kernel
	@$(PYTHON) -m tests.lab.supervisor.soak --minutes $(MINUTES) --kernel debug

fuzz: setup-tests ## random programs against the module for MINUTES (10), guided by coverage (KERNEL=debug)
	@$(PYTHON) -m tests.fuzz.fuzz --minutes $(MINUTES) --seed $(SEED) $(if $(KERNEL),--kernel \
		$(KERNEL)) $(if $(REPLAY),--replay $(REPLAY)) $(if $(KEEP),--keep)

coverage: setup-tests ## lines of kmod/ and lib/ that tests reach: build/coverage/report.txt (5 min)
	@$(PYTHON) -m tests.coverage.coverage

site: lib ## all documents, manual pages and the API as a static site: build/site/html (2 min)
	@python3 scripts/site/generator.py $(BUILD)

pictures: setup-tests workloads ## the pictures of docs/pictures anew, from real runs (needs chromium; 3 min)
	@$(PYTHON) scripts/pictures.py docs/pictures

setup: ## install what the command lacks: packages by apt on Debian, Python ones in .venv
	@scripts/setup

setup-tests: ## the same, and what tests need (make test runs it)
	@scripts/setup --tests

.PHONY: types style sanitized checked
types:
	@$(PYTHON) -m mypy

style:
	@$(PYTHON) -m ruff check --quiet .

# The first time, tests are compiled by one process: else each of those that run them compiles all.
$(BUILD)/compiled:
	@mkdir -p $(@D)
	@$(PYTEST) -q --collect-only tests/unit tests/abi >$@ || true

# Built to be run once: with less optimisation it is built in half the time.
sanitized:
	@$(MAKE) --no-print-directory BUILD=build/sanitized STATIC= CFLAGS='-Og -g1' \
		SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=all' unit-programs

checked: $(LIBRARIES) $(UNIT_RUN)

.PHONY: unit-programs workloads examples arm64
workloads: $(filter $(BUILD)/eval/% $(BUILD)/examples/% $(BUILD)/sampler/%,$(PROGRAMS))
workloads: $(filter $(PYTHON_COPY),$(LIBRARIES)) # the experiment files counts it
workloads: $(filter $(BUILD)/stat/%,$(PROGRAMS)) $(MODEL_PLUGINS) ## build the examples, and what experiments and stat run
	$(call made,built: the examples in $(BUILD)/examples and all that bin/trapless runs. \
		Next: build/examples/first or bin/trapless doctor)

unit-programs: $(UNIT_PROGRAMS)

all: $(LIBRARIES) $(PROGRAMS) ## build the library, workloads, examples and test programs

lib: $(LIBRARIES) ## build libtrapless into build/lib (gcc and libc6-dev; with python3-dev also for Python)
	$(call made,built: $(LIBTRAPLESS) and $(if $(filter $(PYTHON_EXTENSION),$(LIBRARIES)),the Python \
		extension,no Python extension: that needs python3-dev). README.md has a first program)

examples: $(filter $(BUILD)/examples/%,$(PROGRAMS))

arm64: ## cross-build libtrapless and the examples for arm64, into build/arm64 (gcc-aarch64-linux-gnu)
	@$(MAKE) --no-print-directory -s -j2 BUILD=build/arm64 CC=aarch64-linux-gnu-gcc \
		AR=aarch64-linux-gnu-ar lib examples

# What `trapless` needs of this checkout, installed together under one folder: the package, the
# module's source (built for each kernel when needed), the experiments and their programs.
TREE = $(DESTDIR)$(PREFIX)/lib/trapless
SHARE = $(DESTDIR)$(PREFIX)/share
PAGES = $(wildcard man/*.[17])
LICENCES = $(SHARE)/licenses/trapless
# Where each shell looks for what completes a command line; click writes it.
COMPLETE_bash = $(SHARE)/bash-completion/completions/trapless
COMPLETE_zsh = $(SHARE)/zsh/site-functions/_trapless
COMPLETE_fish = $(SHARE)/fish/vendor_completions.d/trapless.fish
SHELLS = bash zsh fish

install: command-runs install-lib install-command ## the command, library, headers, manuals, module source (PREFIX, DESTDIR)

.PHONY: install-command uninstall-command command-runs
command-runs: # it writes the completion; what it lacks is said before anything is built
	@$(TRAPLESS) --version >/dev/null

install-command: command-runs workloads
	install -d $(TREE) $(DESTDIR)$(PREFIX)/bin $(LICENCES) $(SHARE)/man/man1 $(SHARE)/man/man7
	$(foreach page,$(PAGES),install -m 644 $(page) $(SHARE)/man/man$(subst .,,$(suffix $(page)))/ &&) true
	tar -c --exclude=__pycache__ --exclude='*.so' pyproject.toml trapless kmod include lib eval \
		stat/kmod stat/include | tar -x --no-same-owner -C $(TREE)
	tar -C $(BUILD) -c --transform='s|^|build/|' $(patsubst $(BUILD)/%,%,$(filter $(addprefix \
		$(BUILD)/,eval/% examples/% sampler/% stat/%),$(PROGRAMS)) $(MODEL_PLUGINS)) | \
		tar -x --no-same-owner -C $(TREE)
	install -m 755 bin/trapless $(DESTDIR)$(PREFIX)/bin/trapless
	install -m 644 LICENSES/* $(LICENCES)
	$(foreach shell,$(SHELLS),install -d $(dir $(COMPLETE_$(shell))) && \
		_TRAPLESS_COMPLETE=$(shell)_source $(TRAPLESS) > $(COMPLETE_$(shell)) &&) true

# A folder of these is removed when it is empty, and so are those above it; of a system's own prefix
# the folders stay that every system has.
OWN_PREFIX = $(DESTDIR)$(filter-out /usr /usr/local,$(PREFIX))
FOLDERS = $(if $(OWN_PREFIX),bin lib) $(addprefix share/,licenses bash-completion/completions \
	zsh/site-functions fish/vendor_completions.d man/man1 man/man3 man/man7)
FOLDERS_OF_ALL = $(addprefix $(PREFIX)/,$(FOLDERS)) $(libdir)/pkgconfig $(includedir)/linux

uninstall: uninstall-lib uninstall-command ## remove what `make install` put there
	@cd $(or $(DESTDIR),/) && for folder in $(FOLDERS_OF_ALL:/%=%); do [ ! -d $$folder ] || \
		rmdir --ignore-fail-on-non-empty $(if $(OWN_PREFIX),-p) $$folder; done

uninstall-command:
	rm -rf $(TREE) $(LICENCES)
	rm -f $(DESTDIR)$(PREFIX)/bin/trapless $(foreach shell,$(SHELLS),$(COMPLETE_$(shell)))
	$(foreach page,$(PAGES),rm -f $(SHARE)/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page)) &&) true

deb: ## Debian packages of all this, into build/deb; `make packages-test` tries them
	scripts/deb

clean: ## remove what was built (not .venv, not results, not the cache of kernels)
	rm -rf build .mypy_cache .pytest_cache .ruff_cache lib/bindings/python/libtrapless/*.so
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
