/* How often a loop runs, and which branch: decided by the host, between the CUDA graphs of a model's launches.
 *
 * model.c of a model with loops or branches that data decide defines, beside the other tables of the plan:
 *   GRAPHS, graphs[]                       nodes that follow each other in nodes[]
 *   SEQUENCES, sequences[], items[]        graphs and decisions, one after another; sequences[0] is the model
 *   DECISIONS, decisions[]                 loops and branches: the sequences that are their bodies, and where lies what decides
 *
 * An inference is launches of these graphs in one stream. What they work on lies at the same places in every iteration: kernels of a
 * loop's own, the last ones of the graphs before it and of its body, bring it there. So all that is to be done here is to read a number or a
 * flag where one is needed, which waits for all that was launched, and to launch. A loop that only counts is read once.
 */

/* Begins to read what decides, if it is there. */
static int ask(tw_instance *m, const struct answer *answer, void *to, size_t bytes) {
    return answer->is_there && check(cu.MemcpyDtoHAsync(to, address(m, &answer->at, m->given), bytes, m->stream), "reading what decides") ? -1 : 0;
}

static int hear(tw_instance *m) { return check(cu.StreamSynchronize(m->stream), "waiting for what decides"); }

static int run_sequence(tw_instance *m, const struct sequence *sequence, double *seconds);

static int run_loop(tw_instance *m, const struct decision *loop, int64_t trips, int going, double *seconds) {
    for (int64_t number = 0; going && number < trips; number++) {
        if (run_sequence(m, &sequences[loop->bodies[0]], seconds)) return -1;
        if (!loop->again.is_there) continue;
        if (ask(m, &loop->again, &m->answers->going, sizeof m->answers->going) || hear(m)) return -1;
        going = m->answers->going;
    }
    return 0;
}

static int decide(tw_instance *m, const struct decision *decision, double *seconds) {
    struct answers *answers = m->answers;
    *answers = (struct answers){INT64_MAX, 1};
    if (ask(m, &decision->trips, &answers->trips, sizeof answers->trips) || ask(m, &decision->going, &answers->going, sizeof answers->going)) return -1;
    if ((decision->trips.is_there || decision->going.is_there) && hear(m)) return -1;
    if (!decision->is_loop) return run_sequence(m, &sequences[decision->bodies[!answers->going]], seconds);
    const int64_t trips = decision->most && decision->most < answers->trips ? decision->most : answers->trips;
    return run_loop(m, decision, trips, answers->going, seconds);
}

static int run_graph(tw_instance *m, int at, double *seconds) {
    if (!seconds) return check(cu.GraphLaunch(m->executables[at], m->stream), "launching a graph");
    if (launch_apart(m, graphs[at].first_node, graphs[at].end) || hear(m)) return -1;
    return read_events(m, graphs[at].first_node, graphs[at].end, seconds);
}

static int run_sequence(tw_instance *m, const struct sequence *sequence, double *seconds) {
    for (const struct item *item = &items[sequence->first_item], *end = item + sequence->items; item < end; item++)
        if (item->graph < 0 ? decide(m, &decisions[item->decision], seconds) : run_graph(m, item->graph, seconds)) return -1;
    return 0;
}

/* Where `seconds` are asked for, they become those of each call. */
static int run_model(tw_instance *m, double *seconds) {
    for (int call = 0; seconds && call < CALLS; call++) seconds[call] = 0;
    return run_sequence(m, &sequences[0], seconds);
}
