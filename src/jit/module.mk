# The kernel sources inside the binary: every .cu, .cuh and params header, found by path (jit_source.h).
JIT_SOURCES := $(sort $(shell find src/kernels/cuda src/kernels/params -name '*.cu' -o -name '*.cuh' -o -name '*.h'))
GEN_jit := $(BUILD)/gen/jit_files.o

# Rewritten only when the list of files changes, so that a new or deleted file rebuilds the table.
$(shell mkdir -p $(BUILD)/gen; echo '$(JIT_SOURCES)' | cmp -s - $(BUILD)/gen/jit_files.list || echo '$(JIT_SOURCES)' > $(BUILD)/gen/jit_files.list)

$(BUILD)/gen/jit_files.c: $(BUILD)/gen/jit_files.list src/jit/embed
	src/jit/embed $(JIT_SOURCES) > $@

$(BUILD)/gen/jit_files.o: $(BUILD)/gen/jit_files.c $(JIT_SOURCES)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# Programs that need a GPU: tests/gpu/gpu_*.c. CI builds them and does not run them.
$(BUILD)/tests/gpu/%: tests/gpu/%.c $(call libraries,$(USE_ops) ops)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,$(USE_ops) ops) -Wl,--end-group $(LDLIBS)
