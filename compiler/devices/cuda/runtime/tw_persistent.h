/* What a persistent kernel is made of: resident blocks that take the tile tasks of a plan one after another.
 *
 * Tasks are numbered in the order of the plan, those of one call next to each other. A block takes a ticket, whose number is that of a
 * task, waits until the calls that the task reads from are complete, carries the task out and counts it. Tickets are taken in order, and a
 * task waits for tasks with lower numbers alone: of those that are not complete the first waits for none, and whoever has its ticket is at
 * work on it. So no task waits for ever, however few blocks are resident at a time.
 *
 * Counters are never cleared. Each inference takes as many tickets as any other, one beyond the last task for each block, so a ticket
 * says of which inference it is; and the count of a call's complete tasks is compared with what all inferences so far make.
 */
#pragma once

enum { TW_TILE_BARRIER = 1, TW_TURN_BARRIER = 2 }; /* 0 is that of __syncthreads */
enum { TW_LINE = 32 }; /* counts in a cache line, of which one is used: blocks that wait for one call do not hold up who counts another */

/* A call: its tasks are `first` to before `past`; `first_wait` to before `past_wait` are positions in the table of the calls that it
 * waits for; `first_operand` in that of places. */
struct tw_call { int kernel, first, past, first_wait, past_wait, first_operand; };

/* A task, and its call. */
struct tw_turn { int task, call; };

/* What the threads of a block share. */
struct tw_block {
    tw_turn turns[2];    /* of this turn and of the next one, by turns in one of two places: the first thread writes them */
    unsigned *ended;     /* of each call how many of its tasks have ended, in all inferences; modulo 2^32. TW_LINE apart */
    unsigned inferences; /* with this one; modulo 2^32 */
    unsigned long long *times; /* of each call begin and end, in nanoseconds; null: it is not timed */
};

/* Until a count, modulo 2^32, has come so far: the thread then knows all that was done before it was counted. The acquire, which drops what
 * L1 holds, comes once and not with each look. */
TW_DEVICE void tw_await_count(const unsigned *count, unsigned wanted) {
    while ((int)(tw_load_relaxed(count) - wanted) < 0) __nanosleep(20);
    (void)tw_load_acquire(count);
}

/* Before a task of a call reads what others wrote: the first `threads` threads of the block, whole warps, wait together for all that the
 * call waits for. What these wrote is then seen by all of them. */
TW_DEVICE void tw_await(const tw_block *own, const tw_call *calls, const int *waits, int number, int threads) {
    const tw_call &call = calls[number];
    if (call.first_wait == call.past_wait) return;
    for (int at = call.first_wait + (int)threadIdx.x; at < call.past_wait; at += threads) {
        const tw_call &other = calls[waits[at]];
        const unsigned wanted = own->inferences * (unsigned)(other.past - other.first);
        tw_await_count(own->ended + TW_LINE * waits[at], wanted);
    }
    tw_barrier_sync(TW_TILE_BARRIER, threads);
}

/* What the first thread of a block knows of tickets. */
struct tw_tickets {
    unsigned long long *next; /* the next one that nobody has taken, and behind it whether calls are timed */
    unsigned long long begin; /* the first one of this inference */
    int call;                 /* of the last task */
};

/* Takes a ticket. It is not looked at before `tw_turn_of`, so that what is done meanwhile hides the trip to memory. */
TW_DEVICE unsigned long long tw_take_ticket(const tw_tickets &tickets) { return atomicAdd(tickets.next, 1ull); }

/* The task of a ticket, and its call, which is that of the task before or a later one. */
TW_DEVICE tw_turn tw_turn_of(tw_tickets &tickets, unsigned long long ticket, const tw_call *calls, int tasks) {
    const int task = (int)(ticket - tickets.begin);
    while (task < tasks && task >= calls[tickets.call].past) tickets.call++;
    return {task, tickets.call};
}

/* The first turn of a block, for its first thread. Each inference takes one ticket for each task and one for each block. */
TW_DEVICE void tw_begin(tw_block *own, tw_tickets &tickets, unsigned *ended, unsigned long long *times, const tw_call *calls, int tasks,
                        int blocks) {
    const unsigned long long ticket = tw_take_ticket(tickets), round = (unsigned long long)(tasks + blocks);
    tickets.begin = ticket / round * round;
    own->ended = ended;
    own->times = tickets.next[1] ? times : nullptr;
    own->inferences = (unsigned)(ticket / round) + 1;
    own->turns[0] = tw_turn_of(tickets, ticket, calls, tasks);
}

/* Of a task that has ended and is not counted yet, by the first thread of its block, which began with it at `began`: a call is at work from
 * the first task's turn on, but not before what it waits for has ended; and until the end of its last task. The clock never goes back, so
 * that nothing has to be cleared from one inference to the next. */
TW_DEVICE void tw_time(const tw_block *own, const tw_call *calls, const int *waits, tw_turn turn, unsigned long long began) {
    const tw_call &call = calls[turn.call];
    if (turn.task == call.first) {
        for (int at = call.first_wait; at < call.past_wait; at++) {
            const unsigned long long end = own->times[2 * waits[at] + 1];
            began = end > began ? end : began;
        }
        own->times[2 * turn.call] = began;
    }
    atomicMax(own->times + 2 * turn.call + 1, tw_global_timer());
}
