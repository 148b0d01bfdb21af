/* Which versions of a repository's model are served at once: Triton's version_policy, from DIR/NAME/config.pbtxt (model_config.h) or from the
 * configuration that a load brings as JSON. Without either the highest version alone. */
#ifndef ROSE_SERVER_VERSIONS_H
#define ROSE_SERVER_VERSIONS_H

#include "base/json.h"
#include "base/status.h"

enum versions_kind { VERSIONS_LATEST, VERSIONS_ALL, VERSIONS_SPECIFIC };
enum { VERSIONS_MOST = 32 };
struct version_policy {
    enum versions_kind kind;
    int count;                  /* LATEST: so many, at least 1 (0 counts as 1); SPECIFIC: of `list` */
    int32_t list[VERSIONS_MOST];
};

/* A configuration as JSON: {"version_policy": {"latest": {"num_versions": 2}}}, or all, or specific. Any other field is refused by name, since it would
 * have no effect; "name" must be the model's. */
enum rose_status versions_read_json(const struct json *config, const char *name, struct version_policy *out, struct rose_error *err);
/* As in Triton's configuration: {"latest":{"num_versions":1}}. */
void versions_add(const struct version_policy *p, struct strbuf *b);

struct models;
struct model;
/* Does its name's policy want this version among those that are known? */
bool versions_wanted(const struct models *m, const struct model *model);
/* The highest wanted version of a name that is not ready; else the highest wanted one; NULL: the name is unknown, or its policy wants none. */
struct model *versions_next(struct models *m, struct str name);

#endif
