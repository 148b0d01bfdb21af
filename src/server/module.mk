$(BUILD)/obj/server/page.o: src/server/page/index.html

# gRPC (rpc*.c): headers of the core library, which is loaded when --grpc-port asks for it; protobuf-c's runtime is linked in, as an archive where
# there is one; its code for our .proto files is written here. NO_LIBS="grpc" builds without.
ifneq ($(shell command -v protoc-c 2>/dev/null),)
ifeq ($(call probe,grpc,grpc libprotobuf-c),yes)
RPC_PROTOS := inference health reflection_v1
RPC_SONAME := $(shell basename "$$(readlink -f "$$($(CC) -print-file-name=libgrpc.so)")" | sed 's/\(\.so\.[0-9]*\).*/\1/')
RPC_ARCHIVE := $(filter /%,$(shell $(CC) -print-file-name=libprotobuf-c.a))
RPC_OBJECTS := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/server/rpc*.c))
$(RPC_OBJECTS): CPPFLAGS += -DROSE_HAVE_GRPC -DROSE_GRPC_SONAME='"$(RPC_SONAME)"' -I$(BUILD)/gen
LIBS_server += $(or $(RPC_ARCHIVE),$(shell $(PKG) --libs libprotobuf-c))
GEN_server := $(RPC_PROTOS:%=$(BUILD)/gen/%.pb-c.o) $(BUILD)/gen/rpc_descriptors.o

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h &: src/server/proto/%.proto
	@mkdir -p $(BUILD)/gen
	protoc-c -Isrc/server/proto --c_out=$(BUILD)/gen $<

$(BUILD)/gen/%.pb-c.o: $(BUILD)/gen/%.pb-c.c
	$(CC) $(CPPFLAGS) $(filter-out -W%,$(CFLAGS)) -c $< -o $@

# What reflection answers with: a FileDescriptorSet of all of them.
$(BUILD)/gen/rpc_descriptors.pb: $(wildcard src/server/proto/*.proto)
	@mkdir -p $(BUILD)/gen
	protoc-c -Isrc/server/proto --descriptor_set_out=$@ $(notdir $^)
$(BUILD)/gen/rpc_descriptors.o: $(BUILD)/gen/rpc_descriptors.pb
	printf '.section .rodata\n.global rose_descriptors_begin\n.hidden rose_descriptors_begin\nrose_descriptors_begin:\n.incbin "%s"\n.global rose_descriptors_end\n.hidden rose_descriptors_end\nrose_descriptors_end:\n.byte 0\n.section .note.GNU-stack,"",%%progbits\n' $< | $(CC) -c -x assembler - -o $@

$(RPC_OBJECTS): $(RPC_PROTOS:%=$(BUILD)/gen/%.pb-c.h)
endif
endif
