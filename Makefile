# Rose. make: build/rose and librose; make check: every test; make install PREFIX=; make bench; make clean.
#
# One static library a folder of src/. A test links only the folders that its own folder may include, so a
# wrong dependency fails to link as well as failing scripts/check_includes.
#
#   BUILD=dir        where everything built goes (default build)
#   SAN=address|thread|fuzz   sanitizer build (use another BUILD); make fuzz needs CC=clang SAN=fuzz
#   CC=, CFLAGS_EXTRA=   as usual

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
AR      ?= ar
PKG     ?= pkg-config
VERSION := $(shell sed -n 's/.*ROSE_VERSION "\(.*\)".*/\1/p' include/rose.h)

OPT      ?= -O2 -g
WARN     := -Wall -Wextra -Werror -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wno-pass-failed
CPPFLAGS := -Iinclude -Isrc -D_FILE_OFFSET_BITS=64
CFLAGS    = -std=c17 $(OPT) $(WARN) -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden -fPIC -MMD -MP $(CFLAGS_EXTRA)
LDLIBS   := -lpthread -ldl -lm
GUARD := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
# Instrumented code hides from gcc what bounds a text; that messages may be cut is meant.
SAN_WARN := $(if $(findstring clang,$(CC)),,-Wno-format-truncation)
ifeq ($(SAN),address)
  CFLAGS_EXTRA += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DROSE_GUARD $(SAN_WARN)
  LDFLAGS      += -fsanitize=address,undefined $(GUARD)
else ifeq ($(SAN),fuzz)
  # clang: as address, and with the counters that libFuzzer follows. The unrolled intrinsics of the instruction-set files drown
  # in both (minutes a file): they have AddressSanitizer alone here; SAN=address with gcc has both for them too.
  CFLAGS_EXTRA += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DROSE_GUARD
  SAN_COVER    := -fsanitize=fuzzer-no-link
  # No fuzz target runs the kernels, whose loops would take minutes of the tests by -O1 with counters.
  SAN_LOOPS    := -O2
  SAN_ISA      := -fno-sanitize=undefined
  LDFLAGS      += -fsanitize=address,undefined $(GUARD)
else ifeq ($(SAN),thread)
  CFLAGS_EXTRA += -fsanitize=thread -DROSE_GUARD $(SAN_WARN)
  LDFLAGS      += -fsanitize=thread $(GUARD)
endif

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)

# --- libraries: optional ones are probed; NO_LIBS="curl edit" builds without them -------------------------------
probe = $(if $(filter $(1),$(NO_LIBS)),,$(shell $(PKG) --exists $(2) 2>/dev/null && echo yes))
define use_library
ifeq ($(call probe,$(1),$(2)),yes)
  CPPFLAGS += -DROSE_HAVE_$(3) $(shell $(PKG) --cflags $(2))
  LIBS_$(4) += $(shell $(PKG) --libs $(2))
endif
endef
$(eval $(call use_library,pcre2,libpcre2-8,PCRE2,tokenizer))
# Headers only: these two are loaded when a command wants them, so that no other start pays for them.
$(eval $(call use_library,curl,libcurl,CURL,late))
$(eval $(call use_library,edit,libedit,EDIT,late))
$(eval $(call use_library,microhttpd,libmicrohttpd,MICROHTTPD,server))
$(eval $(call use_library,zlib,zlib,ZLIB,server))

# --- folders and who may use whom: the design's table, also the link order ----------------------------------------
DIRS := base tensor device jit kernels ops comm weights cache model tokenizer engine api cli server
USE_base      :=
USE_tensor    := base
USE_device    := tensor base
USE_jit       := device tensor base
USE_kernels   := tensor base
USE_ops       := jit kernels device tensor base
USE_comm      := jit kernels device tensor base
USE_weights   := device tensor base
USE_cache     := device tensor base
USE_model     := ops comm weights cache jit kernels device tensor base
USE_tokenizer := base
USE_engine    := model cache ops comm weights jit kernels tokenizer device tensor base
USE_api       := engine tokenizer weights model cache ops comm jit kernels device tensor base
USE_server    := api $(USE_api)
USE_cli       := server api $(USE_api)

sources = $(sort $(wildcard src/$(1)/*.c) $(if $(filter kernels,$(1)),$(wildcard src/kernels/cpu/*.c)))
objects = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(call sources,$(1)))
library = $(if $(call sources,$(1)),$(BUILD)/lib$(1).a)
libraries = $(foreach d,$(1),$(call library,$(d)))

# Instruction sets belong to files by their suffix; the portable files get none. Elsewhere than on x86 they compile to nothing.
ifeq ($(ARCH),x86_64)
ISA_avx2   := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
ISA_bf16   := $(ISA_avx512) -mavx512bf16
ISA_amx    := $(ISA_bf16) -mamx-tile -mamx-int8 -mamx-bf16
endif
isa_of = $(foreach i,avx2 avx512 bf16 amx,$(if $(filter %_$(i).c,$(1)),$(ISA_$(i))))

.PHONY: all check test install clean bench tests fuzz print-tests
all: $(BUILD)/rose

$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(if $(strip $(call isa_of,$<)),$(call isa_of,$<) $(SAN_ISA),$(if $(filter src/kernels/%,$<),$(SAN_LOOPS),$(SAN_COVER))) -c $< -o $@

define folder_rule
$(BUILD)/lib$(1).a: $(call objects,$(1)) $(GEN_$(1))
	@rm -f $$@
	$(AR) rcs $$@ $$^
endef
include $(wildcard src/*/module.mk)
$(foreach d,$(DIRS),$(eval $(call folder_rule,$(d))))

ALL_LIBS = $(foreach d,$(DIRS),$(LIBS_$(d)))
$(BUILD)/rose: $(call libraries,cli $(USE_cli))
	$(CC) $(LDFLAGS) -o $@ -Wl,--start-group $^ -Wl,--end-group $(ALL_LIBS) $(LDLIBS)

# --- the library: librose.a, librose.so, rose.pc ---------------------------------------------------------------------
LIB_DIRS := api $(USE_api)
LIB_LIBS  = $(foreach d,$(LIB_DIRS),$(LIBS_$(d))) $(LDLIBS)
SOVERSION := 0
.PHONY: lib examples
lib: $(BUILD)/librose.a $(BUILD)/librose.so $(BUILD)/rose.pc

# One archive made of the folders' archives.
$(BUILD)/librose.a: $(call libraries,$(LIB_DIRS))
	@rm -f $@
	(echo create $@; for a in $^; do echo addlib $$a; done; echo save; echo end) | $(AR) -M

$(BUILD)/librose.so: $(call libraries,$(LIB_DIRS))
	$(CC) $(LDFLAGS) -shared -Wl,-soname,librose.so.$(SOVERSION) -Wl,--no-undefined -o $@ -Wl,--whole-archive $^ -Wl,--no-whole-archive $(LIB_LIBS)
	ln -sf librose.so $(BUILD)/librose.so.$(SOVERSION)

# PREFIX is in it, so it is written every time.
.PHONY: $(BUILD)/rose.pc
$(BUILD)/rose.pc:
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'Name: rose' 'Description: serving engine for transformer models' 'Version: $(VERSION)' \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${libdir} -lrose' 'Libs.private: $(LIB_LIBS)' > $@

examples: $(BUILD)/examples/embed
$(BUILD)/examples/embed: examples/embed.c $(BUILD)/librose.so
	@mkdir -p $(@D)
	$(CC) -Iinclude $(CFLAGS) $< -o $@ -L$(BUILD) -lrose -Wl,-rpath,'$$ORIGIN/..' -Wl,-rpath-link,$(BUILD)

# --- tests: tests/<folder>/test_*.c, linked against what that folder may use --------------------------------------
TEST_SOURCES := $(sort $(wildcard tests/*/test_*.c))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SOURCES))
tests: $(TESTS)

define test_rule
$(BUILD)/tests/$(1)/test_%: tests/$(1)/test_%.c $(call libraries,$(1) $(USE_$(1)))
	@mkdir -p $$(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $$< -o $$@ $(LDFLAGS) -Wl,--start-group $(call libraries,$(1) $(USE_$(1))) -Wl,--end-group \
	    $(foreach d,$(1) $(USE_$(1)),$(LIBS_$(d))) $(LDLIBS)
endef
$(foreach d,$(DIRS),$(eval $(call test_rule,$(d))))
include $(wildcard tests/*/module.mk)

# The list scripts/check runs.
print-tests:
	@echo $(TESTS)

# --- fuzz targets: tests/fuzz/fuzz_*.c; make fuzz CC=clang SAN=fuzz BUILD=... ---------------------------------------
FUZZERS := $(patsubst tests/%.c,$(BUILD)/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_DIRS := $(filter-out cli,$(DIRS))
fuzz: $(FUZZERS)
$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(call libraries,$(FUZZ_DIRS))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -Wno-missing-prototypes $< -o $@ $(LDFLAGS) -fsanitize=fuzzer -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
	    $(foreach d,$(FUZZ_DIRS),$(LIBS_$(d))) $(LDLIBS)

# --- bench/bench_*.c: each measures against this machine's limits in the same run ---------------------------------
BENCHES := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/bench_*.c))
$(BUILD)/bench/%: bench/%.c $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)
bench: $(BENCHES)
	@for b in $(BENCHES); do echo "== $$b"; $$b || exit 1; done

check test:
	scripts/check

# --- make install PREFIX= DESTDIR=: the program with man page and completion, the library with header and rose.pc -----
$(BUILD)/rose.1: $(BUILD)/rose
	$< man > $@
$(BUILD)/rose.bash: $(BUILD)/rose
	$< completion > $@
INTO = "$(DESTDIR)$(PREFIX)"
install: all lib $(BUILD)/rose.1 $(BUILD)/rose.bash
	install -d $(INTO)/bin $(INTO)/lib/pkgconfig $(INTO)/include $(INTO)/share/man/man1 $(INTO)/share/bash-completion/completions $(INTO)/share/doc/rose
	install -m 755 $(BUILD)/rose $(INTO)/bin/rose
	strip $(INTO)/bin/rose
	install -m 644 $(BUILD)/rose.1 $(INTO)/share/man/man1/rose.1
	install -m 644 $(BUILD)/rose.bash $(INTO)/share/bash-completion/completions/rose
	install -m 644 include/rose.h $(INTO)/include/rose.h
	install -m 644 $(BUILD)/librose.a $(INTO)/lib/librose.a
	strip -g $(INTO)/lib/librose.a
	install -m 755 $(BUILD)/librose.so $(INTO)/lib/librose.so.$(SOVERSION)
	strip --strip-unneeded $(INTO)/lib/librose.so.$(SOVERSION)
	ln -sf librose.so.$(SOVERSION) $(INTO)/lib/librose.so
	install -m 644 $(BUILD)/rose.pc $(INTO)/lib/pkgconfig/rose.pc
	install -m 644 LICENSE README.md $(INTO)/share/doc/rose
	@# programs find librose by the linker's cache, which only root writes, and only for the running system
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig || echo "ldconfig failed: run it by hand, or set LD_LIBRARY_PATH"; fi

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
