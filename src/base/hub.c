#include "base/hub.h"

#include "base/file.h"
#include "base/option.h"

const char *hub_cache_dir(struct arena *a)
{
    const char *dir = option_env("HF_HUB_CACHE");
    if (dir) return dir;
    if ((dir = option_env("HF_HOME"))) return file_join(a, dir, "hub");
    if ((dir = option_env("XDG_CACHE_HOME"))) return file_join(a, dir, "huggingface/hub");
    if ((dir = option_env("HOME"))) return file_join(a, dir, ".cache/huggingface/hub");
    return NULL;
}

/* Letters, digits, '-', '_', '.'; neither a path's "." and ".." nor the "--" that separates in directory names. */
static bool plain_word(struct str s)
{
    if (!s.n || s.n > 96 || s.p[0] == '.' || s.p[0] == '-' || s.p[s.n - 1] == '.' || s.p[s.n - 1] == '-' || str_find(s, STR("--"), 0) >= 0 || str_find(s, STR(".."), 0) >= 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
        if (!fine) return false;
    }
    return true;
}

bool hub_name(const char *text, struct str *org, struct str *name, struct str *revision)
{
    const char *slash = strchr(text, '/'), *at = slash ? strchr(slash, '@') : NULL;
    if (!slash) return false;
    *org = (struct str){text, (size_t)(slash - text)};
    *name = (struct str){slash + 1, at ? (size_t)(at - slash - 1) : strlen(slash + 1)};
    *revision = at ? str_of(at + 1) : (struct str){"", 0};
    return plain_word(*org) && plain_word(*name) && (!at || hub_safe_path(*revision));
}

const char *hub_repo_dir(struct arena *a, const char *cache, struct str org, struct str name)
{
    return arena_printf(a, "%s/models--" STR_FMT "--" STR_FMT, cache, STR_ARG(org), STR_ARG(name));
}

bool hub_safe_path(struct str path)
{
    if (!path.n || path.n > 1000) return false;
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.p[i] < 0x20 || path.p[i] == 0x7f || path.p[i] == '\\') return false;
    for (size_t begin = 0; begin <= path.n;) {
        size_t end = begin;
        while (end < path.n && path.p[end] != '/') end++;
        struct str part = {path.p + begin, end - begin};
        if (!part.n || part.n > 255 || str_is(part, ".") || str_is(part, "..")) return false;
        begin = end + 1;
    }
    return true;
}

bool hub_is_hash(struct str s)
{
    if (s.n < 7 || s.n > 64) return false;
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f'))) return false;
    return true;
}
