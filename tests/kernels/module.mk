# Tests named test_*_amx run the AMX kernels with emulated tiles (-DROSE_AMX_EMULATE, kernels/cpu/amx.h), on any machine that
# has AVX-512: the kernels library with the instruction-set choice and the _amx files compiled anew.
EMULATED := $(filter %/isa.c %_amx.c,$(call sources,kernels))
EMULATED_OBJECTS := $(patsubst src/%.c,$(BUILD)/emulated/%.o,$(EMULATED))
$(BUILD)/emulated/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(call isa_of,$<) $(if $(strip $(call isa_of,$<)),$(SAN_ISA)) -DROSE_AMX_EMULATE -c $< -o $@
$(BUILD)/libkernels_emulated.a: $(filter-out $(patsubst src/%.c,$(BUILD)/obj/%.o,$(EMULATED)),$(call objects,kernels)) $(EMULATED_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

define emulated_test_rule
$(BUILD)/tests/$(1)/test_%_amx: tests/$(1)/test_%_amx.c $(BUILD)/libkernels_emulated.a $(filter-out $(BUILD)/libkernels.a,$(call libraries,$(1) $(USE_$(1))))
	@mkdir -p $$(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $$< -o $$@ $(LDFLAGS) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $(LDLIBS)
endef
$(foreach d,kernels ops,$(eval $(call emulated_test_rule,$(d))))
