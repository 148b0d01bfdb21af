/* version_policy: protobuf's text format and JSON, what they want, what is refused. */
#include "server/kserve.h"
#include "server/internal.h"
#include "server/loader.h"
#include "server/model_config.h"
#include "server/models.h"
#include "server/versions.h"
#include "test.h"

/* Of a config.pbtxt, whose other fields test_pbtxt.c has. */
static struct version_policy text(const char *s)
{
    struct version_policy p = {0};
    struct rose_error err = {0};
    struct model_config *c;
    CHECK_OK(model_config_read(str_of(s), "config.pbtxt", "m", &c, &err), err);
    if (c) p = c->policy;
    model_config_free(c);
    return p;
}

static void wrong(const char *s, const char *word)
{
    struct rose_error err = {0};
    struct model_config *c;
    CHECK(model_config_read(str_of(s), "config.pbtxt", "m", &c, &err) != ROSE_OK && !c);
    if (!strstr(err.message, word)) CHECK_STR(err.message, word);
}

TEST(text_format)
{
    CHECK_INT(text("").kind, VERSIONS_LATEST);
    struct version_policy p = text("name: \"m\" # a comment { [\nplatform: 'x\\'}'\nversion_policy: { latest { num_versions: 3 } }\nmax_batch_size: 8");
    CHECK_INT(p.kind, VERSIONS_LATEST);
    CHECK_INT(p.count, 3);
    CHECK_INT(text("version_policy < all < > >").kind, VERSIONS_ALL);
    p = text("version_policy{specific:{versions:[1, 10]}}\n");
    CHECK_INT(p.kind, VERSIONS_SPECIFIC);
    CHECK(p.count == 2 && p.list[0] == 1 && p.list[1] == 10);
    p = text("version_policy { specific { versions: 2 versions: 5 } }");
    CHECK(p.count == 2 && p.list[1] == 5);
    CHECK_INT(text("optimization { version_policy { all {} } }").kind, VERSIONS_LATEST); /* another message's field */
    wrong("version_policy { newest {} }", "newest");
    wrong("version_policy { latest { num_versions: 0 } }", "num_versions");
    wrong("version_policy { latest { versions: 1 } }", "versions");
    wrong("version_policy { specific { versions: -1 } }", "from 1");
    wrong("version_policy { all {} latest {} }", "one of latest");
    wrong("version_policy { }", "one of latest");
    wrong("version_policy { all {} } version_policy { all {} }", "only one");
    wrong("version_policy { latest {", "'}'");
    wrong("} ", "a field's name");
    wrong("name: \"open", "quotes");
}

static enum rose_status json(const char *s, struct version_policy *p, struct rose_error *err)
{
    struct arena a;
    const struct json *j;
    arena_init(&a, 0);
    CHECK_OK(json_parse(&a, NULL, str_of(s), &j, err), *err);
    enum rose_status st = versions_read_json(j, "m", p, err);
    arena_free(&a);
    return st;
}

TEST(json_format)
{
    struct version_policy p = {0};
    struct rose_error err = {0};
    CHECK_OK(json("{\"name\":\"m\",\"version_policy\":{\"specific\":{\"versions\":[3,\"4\"]}}}", &p, &err), err);
    CHECK(p.kind == VERSIONS_SPECIFIC && p.count == 2 && p.list[0] == 3 && p.list[1] == 4);
    CHECK_OK(json("{\"version_policy\":{\"all\":{}}}", &p, &err), err);
    CHECK_INT(p.kind, VERSIONS_ALL);
    CHECK_OK(json("{\"version_policy\":{\"latest\":{\"num_versions\":2}}}", &p, &err), err);
    CHECK(p.kind == VERSIONS_LATEST && p.count == 2);
    CHECK_INT(json("{}", &p, &err), ROSE_UNSUPPORTED);
    CHECK_INT(json("{\"name\":\"other\"}", &p, &err), ROSE_UNSUPPORTED);
    CHECK_INT(json("{\"max_batch_size\":8,\"version_policy\":{\"all\":{}}}", &p, &err), ROSE_UNSUPPORTED);
    CHECK_INT(json("[1]", &p, &err), ROSE_INVALID);
    CHECK_INT(json("{\"version_policy\":{\"all\":{},\"latest\":{}}}", &p, &err), ROSE_INVALID);
    CHECK_INT(json("{\"version_policy\":{\"specific\":{\"versions\":[0]}}}", &p, &err), ROSE_INVALID);
    CHECK_INT(json("{\"version_policy\":{\"latest\":{\"num_versions\":-1}}}", &p, &err), ROSE_INVALID);
    CHECK_INT(p.count, 2); /* as it was */
    struct strbuf b = {0};
    versions_add(&p, &b);
    versions_add(&(struct version_policy){.kind = VERSIONS_SPECIFIC, .count = 2, .list = {1, 9}}, &b);
    versions_add(&(struct version_policy){.kind = VERSIONS_ALL}, &b);
    CHECK_STR(b.p, "{\"latest\":{\"num_versions\":2}}{\"specific\":{\"versions\":[1,9]}}{\"all\":{}}");
    strbuf_free(&b);
}

TEST(what_is_wanted)
{
    struct model list[5] = {{.name = "a", .version = 1}, {.name = "a", .version = 7}, {.name = "b", .version = 9}, {.name = "a", .version = 3}, {.name = "alone", .version = 1}};
    struct server_options options = {0};
    struct models m = {.models = list, .count = 5, .options = &options};
    for (int i = 0; i < 4; i++) list[i].repository = "dir";
    CHECK(versions_next(&m, STR("a")) == &list[1]);
    CHECK(!versions_wanted(&m, &list[0]) && !versions_wanted(&m, &list[3]) && versions_wanted(&m, &list[2]) && versions_wanted(&m, &list[4]));
    for (int i = 0; i < 4; i++) list[i].policy.count = 2;
    CHECK(!versions_wanted(&m, &list[0]) && versions_wanted(&m, &list[3]));
    list[1].state = MODEL_READY;
    CHECK(versions_next(&m, STR("a")) == &list[3]);
    list[3].state = MODEL_READY;
    CHECK(versions_next(&m, STR("a")) == &list[1]);
    for (int i = 0; i < 4; i++) list[i].policy = (struct version_policy){.kind = VERSIONS_SPECIFIC, .count = 1, .list = {1}};
    CHECK(versions_next(&m, STR("a")) == &list[0]);
    CHECK(versions_next(&m, STR("b")) == NULL);
    CHECK(versions_next(&m, STR("c")) == NULL);
    char label[MODEL_LABEL_MAX];
    CHECK_STR(models_label(&m, &list[1], label), "a");
    CHECK_STR(models_label(&m, &list[3], label), "a/versions/3");
}

/* What is there without anything to load: never wanted, above no other, and a load says why. */
TEST(nothing_to_load)
{
    struct model list[2] = {{.name = "a", .version = 1, .repository = "dir"}, {.name = "a", .version = 7, .repository = "dir", .empty = true, .reason = "no config.json"}};
    struct server_options options = {0};
    struct server s = {.options = &options, .models = {.models = list, .count = 2, .options = &options}};
    CHECK(versions_wanted(&s.models, &list[0]) && !versions_wanted(&s.models, &list[1]));
    CHECK(versions_next(&s.models, STR("a")) == &list[0]);
    list[0].name[0] = 'b';
    struct api_error e = {0};
    struct model_wait wait;
    struct model *m;
    struct arena a;
    arena_init(&a, 0);
    CHECK(!kserve_load(&s, STR("a"), NULL, &a, &wait, &m, &e));
    CHECK_INT(e.status, 400);
    CHECK_STR(e.message, "failed to load 'a': no config.json");
    arena_free(&a);
}

/* What a request may bring to a load or to the settings, of every kind: refused, and never read as something else. */
TEST(parameters_of_every_kind)
{
    static const char *const values[] = {"[1]", "\"x\"", "7", "true", "{\"config\":[1]}", "{\"config\":{\"version_policy\":[]}}", "{\"config\":\"[1]\"}", "{\"config\":\"{\\\"version_policy\\\":[1]}\"}",
                                         "{\"file:1/model\":[1]}", "{\"trace_rate\":[[1]]}", "{\"log_format\":[\"default\"]}", "{\"trace_rate\":{\"a\":1}}"};
    struct model one = {.name = "m", .version = 1};
    struct server_options o = {0};
    struct server s = {.options = &o, .models = {.models = &one, .count = 1}};
    struct model *m;
    struct model_wait wait;
    for (size_t i = 0; i < ROSE_COUNT(values); i++) {
        struct arena a;
        const struct json *j;
        struct rose_error err = {0};
        struct api_error e = {0};
        arena_init(&a, 0);
        CHECK_OK(json_parse(&a, NULL, str_of(values[i]), &j, &err), err);
        CHECK(!kserve_load(&s, STR("m"), j, &a, &wait, &m, &e) && e.status >= 400 && e.message[0]);
        for (int log = 0; log < 2; log++) {
            e = (struct api_error){0};
            bool taken = kserve_settings_change(&s, log, j, &e);
            CHECK(!taken && e.status >= 400 && e.message[0]);
        }
        arena_free(&a);
    }
}

/* Names that are not ready: 503 while they come or go, also with --any-model, else 404. */
TEST(names_on_their_way)
{
    struct model list[3] = {{.name = "comes", .version = 1, .state = MODEL_LOADING}, {.name = "goes", .version = 1, .state = MODEL_UNLOADING}, {.name = "lost", .version = 1, .reason = "broken"}};
    struct server_options options = {.any_model = true};
    struct models m = {.models = list, .count = 3, .options = &options};
    static const struct { const char *name; int status; const char *says; } rows[] = {{"comes", 503, "\"comes\" is being loaded"}, {"goes", 503, "\"goes\" is being unloaded"}, {"lost", 404, "no model \"lost\""},
                                                                                       {"other", 404, "no model \"other\""}, {"", 503, "\"comes\" is being loaded"}};
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        struct api_error e = {0};
        CHECK(!models_find(&m, str_of(rows[i].name), 0) && !models_missing(&m, str_of(rows[i].name), &e));
        CHECK_INT(e.status, rows[i].status);
        if (!strstr(e.message, rows[i].says)) CHECK_STR(e.message, rows[i].says);
    }
    list[2].state = MODEL_READY;
    CHECK(!models_find(&m, STR("comes"), 0) && !models_find(&m, STR("goes"), 0) && models_find(&m, STR("other"), 0) == &list[2] && models_find(&m, STR("lost"), 0) == &list[2]);
    list[1].again = true; /* a load waits for its unloading */
    struct api_error e = {0};
    CHECK(!models_missing(&m, STR("goes"), &e) && strstr(e.message, "is being loaded"));
}

TEST_MAIN(CASE(names_on_their_way), CASE(parameters_of_every_kind), CASE(text_format), CASE(json_format), CASE(what_is_wanted), CASE(nothing_to_load))
