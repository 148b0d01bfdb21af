/* One step: what the scheduler decides becomes a batch and is submitted. */
#include <math.h>
#include <string.h>

#include "engine/cascade.h"
#include "engine/engine.h"

#define TOGETHER_S 0.05 /* requests of one burst */
#define FORCED_BIAS 1e6f /* beyond any logit, penalty and temperature (at most 100) */

static bool wants_all_rows(const struct sequence *s) { return s->prompt_logprobs && !s->prompt_done; }

/* Sequences the scheduler may choose from: all running ones, and the first of the queue. */
static int32_t gather(struct engine *e)
{
    int32_t n = 0;
    for (int32_t i = 0; i < e->options.max_sequences; i++) {
        struct sequence *s = e->slots[i];
        if (!s) continue;
        bool last_drawn = s->length >= s->capacity && s->length > s->request->prompt_count;
        bool unknown = s->in_flight && thoughts_wait(&s->request->thoughts, &s->thoughts, s->length - s->request->prompt_count);
        e->planned[n] = s;
        e->plan[n++] = (struct sched_seq){.priority = s->request->priority, .arrival = s->arrival, .length = s->length, .computed = s->computed,
                                          .capacity = s->capacity, .blocks = s->blocks, .pages = paging_pages(e, s), .running = true,
                                          .hold = s->ended_in_flight || last_drawn || unknown || s->computed >= s->length, .sample_all = wants_all_rows(s)};
    }
    struct sequence *s = e->wait_first;
    for (int32_t k = 0; s && k < e->options.max_sequences; s = s->newer, k++) {
        e->planned[n] = s;
        e->plan[n] = (struct sched_seq){.priority = s->request->priority, .arrival = s->arrival, .length = s->length, .capacity = s->capacity,
                                        .sample_all = wants_all_rows(s)};
        e->plan[n].reusable = paging_probe(e, s, &e->plan[n].reused_idle);
        n++;
    }
    return n;
}

/* Full blocks at which two sequences begin alike. */
static int32_t common_blocks(const struct engine *e, const struct sequence *a, const struct sequence *b)
{
    int32_t page = e->cache.page_tokens, most = (ROSE_MIN(a->known, b->known) - 1) / page, n = 0;
    if (a->request != b->request && (e->options.no_prefix_cache || a->request->salt != b->request->salt)) return 0;
    while (n < most && !memcmp(a->tokens + (size_t)n * (size_t)page, b->tokens + (size_t)n * (size_t)page, (size_t)page * 4)) n++;
    return n;
}

/* A waiting sequence whose prefix another one is about to compute waits for it: the work is done once. */
static void hold_for_prefixes(struct engine *e, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = &e->plan[i];
        if (q->running || q->sample_all) continue;
        for (int32_t k = 0; k < i && !q->hold; k++) {
            const struct sequence *o = e->planned[k];
            int32_t page = e->cache.page_tokens, done = e->plan[k].running ? o->computed / page : e->plan[k].reusable;
            q->hold = common_blocks(e, o, e->planned[i]) > ROSE_MAX(done, q->reusable);
        }
    }
}

void sequence_requeue(struct engine *e, struct sequence *s)
{
    paging_release(e, s);
    e->slots[s->slot] = NULL;
    e->running--;
    s->slot = -1;
    s->state = SEQUENCE_WAITING;
    engine_wait_queue_insert(e, s);
}

static enum rose_status admit(struct engine *e, struct step *step, struct sequence *s, struct rose_error *err)
{
    int32_t slot = 0;
    while (e->slots[slot]) slot++;
    engine_wait_queue_remove(e, s);
    e->slots[slot] = s;
    e->running++;
    s->slot = slot;
    s->state = SEQUENCE_RUNNING;
    paging_start(e, s);
    if (!s->request->admitted_s) {
        s->request->admitted_s = engine_now();
        pthread_mutex_lock(&e->lock);
        e->queued--;
        pthread_mutex_unlock(&e->lock);
    }
    if (!s->generated && !s->prompt_done) s->cached = s->computed;
    if (e->fetches) return staging_admit(e, step, s, err);
    ROSE_TRY(device_copy(e->device, e->history + (int64_t)slot * e->history_stride, s->tokens, (size_t)s->known * sizeof *s->tokens, err));
    ROSE_TRY(device_copy(e->device, e->history_length + slot, &s->known, sizeof s->known, err));
    return device_copy(e->device, e->prompt_length + slot, &s->request->prompt_count, sizeof s->request->prompt_count, err);
}

static void edit(struct batch *b, struct sample_row *row, int32_t token, float bias)
{
    b->edits[b->edits_count++] = (struct sample_edit){token, bias};
    row->edits_count++;
}

static void fill_sampling(struct engine *e, struct batch *b, const struct sequence *s, int32_t position, struct sample_row *row)
{
    const struct request *r = s->request;
    const struct rose_sampling *p = &r->sampling;
    int32_t generated = position + 1 - r->prompt_count;
    *row = (struct sample_row)SAMPLE_ROW_GREEDY;
    if (wants_all_rows(s) && position + 1 < r->prompt_count) {
        row->given = s->tokens[position + 1];
        row->top_n = r->prompt_logprobs;
        return;
    }
    row->seed = r->seed + (uint64_t)s->choice * 0x9E3779B97F4A7C15ull;
    row->step = (uint64_t)generated;
    row->temperature = p->temperature;
    row->top_p = p->top_p > 0 ? p->top_p : 1;
    row->min_p = p->min_p;
    row->top_k = p->top_k;
    row->repetition = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
    row->presence = p->presence_penalty;
    row->frequency = p->frequency_penalty;
    row->top_n = r->logprobs;
    row->slot = s->slot;
    row->append = 1;
    row->edits_begin = b->edits_count;
    int32_t forced = thoughts_force(&r->thoughts, &s->thoughts, generated);
    if (forced >= 0) { /* nothing else weighs against it */
        edit(b, row, forced, FORCED_BIAS);
        return;
    }
    for (size_t i = 0; i < p->logit_bias_count; i++) edit(b, row, p->logit_bias[i].id, p->logit_bias[i].bias);
    if (generated >= p->min_tokens) return;
    for (int32_t i = 0; i < e->model->config.eos_count; i++) edit(b, row, e->model->config.eos[i], -INFINITY);
    for (size_t i = 0; i < r->stop_ids_count; i++) edit(b, row, r->stop_ids[i], -INFINITY);
}

/* Append a sequence's rows to the batch. */
static void fill(struct engine *e, struct step *step, struct batch *b, struct sequence *s, int32_t rows)
{
    int32_t seq = step->extents.n[EXTENT_SEQS]++, first = step->extents.n[EXTENT_ROWS], page = e->cache.page_tokens;
    struct step_entry *entry = &step->entries[step->entries_count++];
    *entry = (struct step_entry){.sequence = s, .rows = rows, .first_position = s->computed, .sample = step->extents.n[EXTENT_SAMPLES]};
    b->seq_rows[seq] = first;
    b->seq_rows[seq + 1] = first + rows;
    b->seq_length[seq] = s->computed + rows;
    if (e->fetches) staging_entry(e, step, b, s, seq, first, rows);
    for (int32_t g = 0; g < e->layout.sizes.groups && !e->fetches; g++)
        memcpy(b->page_table[g] + (size_t)seq * (size_t)e->layout.sizes.table_stride, s->pages[g], (size_t)s->blocks * sizeof(int32_t));
    for (int32_t i = 0; i < rows; i++) {
        int32_t position = s->computed + i, row = first + i;
        b->row_history[row] = (int64_t)s->slot * e->history_stride;
        b->positions[row] = position;
        b->row_seq[row] = seq;
        for (int32_t g = 0; g < e->layout.sizes.groups; g++)
            b->kv_slot[g][row] = (int64_t)s->pages[g][position / page] * page + position % page;
        bool draws = position + 1 == s->length && s->capacity > s->length;
        if (!draws && !(wants_all_rows(s) && position + 1 < s->request->prompt_count)) continue;
        int32_t sample = step->extents.n[EXTENT_SAMPLES]++;
        b->sample_rows[sample] = row;
        fill_sampling(e, b, s, position, &b->sample_row[sample]);
        entry->samples++;
        entry->draws |= draws;
    }
    if (e->layout.sizes.rope_half) {
        const struct model_config *c = &e->model->config;
        float scale;
        rope_inv_freq(&c->ropes[0], c->context, s->request->prompt_count, b->inv_freq + (size_t)seq * (size_t)e->layout.sizes.rope_half, &scale);
    }
    step->extents.n[EXTENT_ROWS] += rows;
    s->computed += rows;
    s->length += entry->draws;
    s->in_flight++;
}

/* The forward of the step: its bucket, and the extents it runs with. Decode steps are padded to their bucket. */
static struct program *forward_of(struct engine *e, struct step *step, struct batch *b, struct extents *run)
{
    int32_t rows = step->extents.n[EXTENT_ROWS];
    const bool decode = e->fetches && rows == step->extents.n[EXTENT_SEQS];
    const struct programs_bucket *bucket = decode ? programs_pick_shared(&e->programs, rows) : NULL;
    step->shares = bucket && cascade_make(e, step, b, bucket->rows);
    if (!step->shares) bucket = programs_pick(&e->programs, rows, decode);
    *run = step->extents;
    if (!bucket) return NULL;
    if (bucket->decode) {
        staging_pad(e, step, b, bucket->rows);
        run->n[EXTENT_ROWS] = run->n[EXTENT_SEQS] = run->n[EXTENT_SAMPLES] = bucket->rows;
    }
    return bucket->program;
}

static enum rose_status submit(struct engine *e, struct step *step, struct batch *b, struct rose_error *err)
{
    int place = (int)(e->submitted % (uint64_t)e->options.depth);
    struct extents run;
    struct program *forward = forward_of(e, step, b, &run), *sample = programs_sample(&e->programs, e->fetches ? place : 0, step->extents.n[EXTENT_SAMPLES]);
    if (!forward) return status_set(err, ROSE_INTERNAL, "a step of %d rows has no program", step->extents.n[EXTENT_ROWS]);
    step->begun_s = engine_now();
    ROSE_TRY(device_mark(e->device, NULL, err));
    if (e->fetches) {
        staging_end(e, step, b, &run);
        ROSE_TRY(device_submit(e->device, e->programs.fetch[place], &run, err));
        ROSE_TRY(device_mark(e->device, "inputs", err));
    } else if (!e->direct) {
        ROSE_TRY(device_copy(e->device, e->inputs, step->staging, e->layout.edits + (size_t)b->edits_count * sizeof(struct sample_edit), err));
    }
    ROSE_TRY(device_submit(e->device, forward, &run, err));
    ROSE_TRY(device_mark(e->device, run.n[EXTENT_ROWS] == run.n[EXTENT_SEQS] ? "decode" : "mixed", err));
    if (step->extents.n[EXTENT_SAMPLES]) {
        ROSE_TRY(device_submit(e->device, sample, &step->extents, err));
        ROSE_TRY(device_mark(e->device, "sample", err));
        if (!e->direct && !e->fetches)
            ROSE_TRY(device_copy(e->device, step->results, e->results, (size_t)step->extents.n[EXTENT_SAMPLES] * sizeof *step->results, err));
    }
    return device_record(e->device, &step->done, err);
}

/* The last running sequence (but not the only one) gives way when pages that were counted on turn out to be missing. */
static void give_way(struct engine *e, int32_t n)
{
    struct sequence *last = NULL;
    for (int32_t i = 0; i < n; i++) {
        struct sequence *s = e->planned[i];
        if (s->state == SEQUENCE_RUNNING && (!last || s->request->priority > last->request->priority ||
                                             (s->request->priority == last->request->priority && s->arrival > last->arrival)))
            last = s;
    }
    if (last && e->running > 1) sequence_requeue(e, last);
    else if (last) sequence_end(e, last, ROSE_FINISH_ERROR, ROSE_NO_MEMORY, "the key-value cache has no room for this sequence");
}

static void begin_step(struct engine *e, struct step *step, struct batch *b)
{
    step->extents = (struct extents){.n = {[EXTENT_ONE] = 1}};
    step->entries_count = 0;
    batch_view(&e->layout, step->staging, b);
    b->seq_rows[0] = 0;
    staging_begin(e, step);
}

/* Requests that came together do not wait behind each other's answers: the first tokens of an answer protect it only from prompts of others. */
static bool came_together(const struct sequence *answer, double submitted_s)
{
    enum { FIRST_TOKENS = 1 };
    return answer->generated <= FIRST_TOKENS && fabs(submitted_s - answer->request->submitted_s) < TOGETHER_S;
}

static bool decodes(const struct sched_seq *s) { return s->running && !s->hold && s->length - s->computed == 1; }

/* The limits of this step: the pace decides what prompts may take beside decode rows. */
static struct sched_limits limits_now(struct engine *e, int32_t n)
{
    struct sched_limits limits = e->sched;
    int32_t decoding = 0, requests = ROSE_MIN(n, e->options.max_sequences);
    double oldest = INFINITY; /* of the prompts to be read */
    bool bound = e->pace.stretch <= 0 && e->device->info.kind == DEVICE_CPU;
    for (int32_t i = 0; i < n; i++) {
        const struct sequence *q = e->planned[i];
        if (decodes(&e->plan[i])) decoding++;
        else if (!e->plan[i].hold && e->plan[i].length > e->plan[i].computed) oldest = ROSE_MIN(oldest, q->generated ? q->last_token_s : q->request->submitted_s);
    }
    for (int32_t i = 0; i < n && !bound; i++) bound = decodes(&e->plan[i]) && !came_together(e->planned[i], oldest);
    const bool cuda = e->device->info.kind == DEVICE_CUDA;
    bound &= !cuda || e->pace.stretch > 0 || !sched_crowd(&limits, e->plan, n);
    limits.prefill_tokens = bound ? pace_rows(&e->pace, decoding, requests) : limits.step_tokens;
    /* A GPU's products work in tiles of 128 and 256 rows: the whole step, decode rows included, is a multiple of them. */
    if (cuda) limits.prefill_tokens = ROSE_MAX(limits.prefill_tokens - decoding, (limits.prefill_tokens + 1) / 2);
    return limits;
}

bool step_submit(struct engine *e)
{
    int32_t n = gather(e);
    if (!n) return false;
    hold_for_prefixes(e, n);
    struct sched_limits limits = limits_now(e, n);
    struct sched_result plan = sched_plan(&limits, e->plan, n, e->pages.free_count + e->prefix.idle_pages, e->order);
    if (plan.preempted && e->submitted > e->collected) return false; /* tokens in flight must be known before they can be computed again */
    struct rose_error err = {0};
    for (int32_t i = 0; i < n; i++)
        if (e->plan[i].preempted) sequence_requeue(e, e->planned[i]);
    if (plan.preempted) {
        pthread_mutex_lock(&e->counters.lock); /* engine_stats reads it from other threads */
        e->counters.stats.preemptions += (uint64_t)plan.preempted;
        pthread_mutex_unlock(&e->counters.lock);
    }
    struct step *step = &e->steps[e->submitted % (uint64_t)e->options.depth];
    struct batch b;
    begin_step(e, step, &b);
    bool short_of_pages = false;
    for (int32_t i = 0; i < n; i++) {
        struct sequence *s = e->planned[e->order[i]];
        int32_t rows = e->plan[e->order[i]].rows;
        if (!rows || e->plan[e->order[i]].preempted) continue;
        if (s->state == SEQUENCE_WAITING && admit(e, step, s, &err) != ROSE_OK) {
            engine_fail(e, &err);
            return false;
        }
        rows = ROSE_MIN(rows, s->length - s->computed);
        if (!paging_reserve(e, s, s->computed + rows)) {
            short_of_pages = true;
            continue;
        }
        fill(e, step, &b, s, rows);
    }
    if (!step->extents.n[EXTENT_ROWS]) {
        if (short_of_pages && e->submitted == e->collected) give_way(e, n);
        return short_of_pages && e->submitted == e->collected;
    }
    step->prefill_rows = plan.prefill_rows;
    step->decode_rows = plan.decode_rows;
    if (submit(e, step, &b, &err) != ROSE_OK) {
        engine_fail(e, &err);
        return false;
    }
    e->submitted++;
    e->shared += step->shares;
    for (int32_t i = 0; i < step->entries_count; i++) {
        paging_publish(e, step->entries[i].sequence);
        paging_pass_windows(e, step->entries[i].sequence);
    }
    return true;
}
