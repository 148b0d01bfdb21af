$(BUILD)/obj/server/page.o: src/server/page/index.html
