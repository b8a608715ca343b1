#include <proto/wait_queues.hpp>

#include <lockcore/types.hpp>

#include <algorithm>
#include <iterator>

namespace lockcore {

bool wait_queue::leave(ticket t) {
    const bool was_head = !waiting_.empty() && head() == t;
    waiting_.erase(t);
    exclusive_.erase(t);
    if (was_head) refusals_ = 0;
    return was_head && !waiting_.empty();
}

std::vector<wait_queue::ticket> wait_queue::contenders() const {
    std::vector<ticket> out;
    for (auto t = waiting_.begin(); t != waiting_.end() && contends(*t); ++t)
        out.push_back(*t);
    return out;
}

std::size_t wait_queue::position(ticket t) const {
    return static_cast<std::size_t>(std::distance(waiting_.begin(), waiting_.find(t))) + 1;
}

milliseconds wait_queue::delay_after_refusal(milliseconds remaining, std::uint64_t random) {
    const milliseconds doubled = retry_delay_min * (std::int64_t{1} << std::min(refusals_, 10U));
    ++refusals_;
    reporting_nodes_.reset();
    const milliseconds longest = std::min(doubled, retry_delay_max);
    const auto half = longest / 2;
    const auto choices = static_cast<std::uint64_t>(longest.count() - half.count() + 1);
    const milliseconds jittered = half + milliseconds{static_cast<std::int64_t>(random % choices)};
    if (remaining <= milliseconds{0} || remaining > retry_delay_max) return jittered;
    // The holder's lease may expire first. A jitter of 1 to 4 ms separates the waiters of several managers.
    return std::min(jittered, remaining + milliseconds{1 + static_cast<std::int64_t>(random % 4)});
}

milliseconds wait_queue::delay_after_end_of_lease(node_index node, const nonce& ended) {
    if (!(ended == ended_lease_)) {
        ended_lease_ = ended;
        reporting_nodes_.reset();
    }
    reporting_nodes_.set(value_of(node));
    refusals_ = 0;
    return reporting_nodes_.count() >= limits_.quorum ? milliseconds{0} : majority_grace;
}

bool wait_queue::begin_handoff() {
    if (waiting_.empty() || handed_over_ >= limits_.handoff_max) return false;
    ++handed_over_;
    return true;
}

milliseconds wait_queue::delay_after_release(bool others_wait) {
    handed_over_ = 0;
    refusals_ = 0;
    return others_wait ? yield_time : milliseconds{0};
}

namespace {

/// Returns the resources of a request but the first.
std::vector<resource_name> other_resources(const acquire_request& request) {
    std::vector<resource_name> out = all_resources(request);
    out.erase(out.begin());
    return out;
}

bool wants(const acquire_request& request, const resource_name& resource) {
    return std::ranges::find(request.resources, resource) != request.resources.end() ||
           std::ranges::find(request.shared, resource) != request.shared.end();
}

}  // namespace

wait_queues::wait_queues(core_context& ctx, std::function<void(call_id)> continue_wait)
    : ctx_(ctx), continue_wait_(std::move(continue_wait)), tickets_(ctx.settings.waiters_max) {}

// --- a place in a queue

result<wait_queues::waiter*> wait_queues::join(call_id call, const acquire_request& request) {
    if (waiting_.size() >= ctx_.settings.waiters_max)
        return make_failure(errc::too_many_waiters, "As many callers wait as the configuration allows.");
    std::shared_ptr<void> admission;
    if (request.admit_waiter && !(admission = request.admit_waiter()))
        return make_failure(errc::too_many_waiters, "As many calls of this caller or its address wait as may.");
    const wait_queue::ticket ticket = tickets_.draw(request, ctx_.now.monotonic);
    const std::string& key = queue_key(request);
    const wait_queue::limits limits{majority_of(ctx_.settings.nodes.size()), ctx_.settings.handoff_max};
    queue& joined =
        queues_.try_emplace(key, queue{wait_queue(limits, find_handoffs(key).handed_over), {}}).first->second;
    joined.order.join(ticket, request.resources.empty());
    waiter& w = waiting_.emplace(ticket, waiter{call, request, ticket, std::move(admission)}).first->second;
    for (const resource_name& r : other_resources(request))
        secondary_waits_.emplace(r.str(), key);

    w.give_up_at = ctx_.now.monotonic + request.wait;
    w.last_refusal = make_failure(errc::resource_locked, "Another lease holds the resource.");
    // The first waiter of a queue has just been refused and has left its wake mark, or it must yield to other managers;
    // so it waits before its next try.
    w.sleeps_until = ctx_.now.monotonic;
    if (joined.order.size() == 1)
        w.sleeps_until += joined.order.delay_after_refusal(milliseconds{0}, ctx_.random.next());
    return &w;
}

void wait_queues::leave(waiter& w, bool granted) {
    const acquire_request& request = w.request;
    const std::string& key = queue_key(request);
    const auto found = queues_.find(key);
    const wait_queue::ticket ticket = w.ticket;
    const bool was_head = found->second.order.leave(ticket);
    ctx_.timers.cancel(w.timer);
    waiting_.erase(ticket);
    for (const resource_name& r : other_resources(request)) {
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        const auto wait = std::find_if(first, last, [&key](const auto& entry) { return entry.second == key; });
        if (wait != last) secondary_waits_.erase(wait);
    }
    if (found->second.order.empty()) {
        if (granted && found->second.order.handed_over() > 0) {
            handoff_state& last = handoffs_[key];
            last.handed_over = found->second.order.handed_over();
            last.handoff_expires_at = ctx_.now.monotonic + request.ttl;
        }
        queues_.erase(found);
        return;
    }
    const bool shares = request.resources.empty(), head_shares = head_of(found->second).request.resources.empty();
    if (was_head) {
        // What a shared request got, the next one may share.
        schedule_head_retry(key, granted && !(shares && head_shares) ? wait_queue::retry_delay_max : milliseconds{0});
    } else if (!shares && head_shares) {  // those behind it may contend from now on
        schedule_head_retry(key, milliseconds{0});
    }
}

wait_queues::choice wait_queues::decide(waiter& w) {
    const bool woken = std::exchange(w.woken, false);
    if (ctx_.now.monotonic >= w.give_up_at) return choice::give_up;
    const bool contends = queues_.at(queue_key(w.request)).order.contends(w.ticket);
    if (!contends) w.sleeps_until = w.give_up_at;
    if (contends && (woken || ctx_.now.monotonic >= w.sleeps_until)) return choice::try_now;
    sleep(w);
    return choice::sleep;
}

void wait_queues::begin_try(waiter& w) {
    ctx_.timers.cancel(w.timer);
    w.woken = w.gets_handoff = false;
    w.trying = true;
}

void wait_queues::end_try(waiter& w, failure refusal) {
    w.trying = false;
    queue& own = queues_.at(queue_key(w.request));
    own.held_until = ctx_.now.monotonic + std::min(refusal.remaining, ctx_.settings.max_ttl);
    // The head tries for all that contend: its grant wakes the others, which seldom try before.
    const milliseconds delay =
        w.ticket == own.order.head()
            ? own.order.delay_after_refusal(refusal.remaining, ctx_.random.next())
            : wait_queue::retry_delay_max * static_cast<int>(std::min<std::size_t>(own.order.position(w.ticket), 8));
    w.sleeps_until = ctx_.now.monotonic + delay;
    w.last_refusal = std::move(refusal);
}

failure wait_queues::give_up(waiter& w) {
    failure last = std::move(w.last_refusal);
    const resource_name& resource = first_resource(w.request);
    if (last.remaining == milliseconds{0}) last.remaining = make_locked_failure(resource).remaining;
    last.queue_position = queues_.at(resource.str()).order.position(w.ticket);
    tickets_.keep(w.request, w.ticket, ctx_.now.monotonic);
    return last;
}

void wait_queues::sleep(waiter& w) {
    ctx_.timers.cancel(w.timer);
    w.timer = ctx_.timers.set(std::min(w.sleeps_until, w.give_up_at), [this, call = w.call] { continue_wait_(call); });
}

void wait_queues::wake(waiter& w) {
    w.woken = true;
    // By then the call may have been answered.
    ctx_.call_at_step_end([this, call = w.call, ticket = w.ticket] {
        if (const auto found = waiting_.find(ticket); found != waiting_.end() && found->second.call == call)
            continue_wait_(call);
    });
}

void wait_queues::wake_all() {
    for (auto& [ticket, w] : waiting_)
        wake(w);
}

bool wait_queues::must_wait(const acquire_request& request) const {
    const std::string& key = queue_key(request);
    return queues_.contains(key) ||
           (request.wait > milliseconds{0} && ctx_.now.monotonic < find_handoffs(key).yield_until);
}

bool wait_queues::has_several(const resource_name& resource) const {
    const auto found = queues_.find(resource.str());
    return found != queues_.end() && found->second.order.size() > 1;
}

failure wait_queues::make_locked_failure(const resource_name& resource) const {
    failure locked = make_failure(errc::resource_locked, "Another lease holds the resource, and others wait for it.");
    const auto found = queues_.find(resource.str());
    if (found != queues_.end())
        locked.remaining =
            std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(found->second.held_until - ctx_.now.monotonic));
    return locked;
}

// --- when the head of a queue tries

void wait_queues::schedule_head_retry(const std::string& resource, milliseconds delay) {
    const auto found = queues_.find(resource);
    if (found == queues_.end()) return;
    for (const wait_queue::ticket t : found->second.order.contenders()) {
        waiter& w = waiting_.at(t);
        if (delay <= milliseconds{0}) {
            wake(w);
        } else if (!w.trying) {
            w.sleeps_until = std::min(w.sleeps_until, ctx_.now.monotonic + delay);
            sleep(w);
        }
    }
}

void wait_queues::reschedule_head_retry(queue& q, monotonic_time time) {
    for (const wait_queue::ticket t : q.order.contenders()) {
        waiter& w = waiting_.at(t);
        if (time <= ctx_.now.monotonic) {
            wake(w);
        } else {
            w.sleeps_until = time;
            if (!w.trying) sleep(w);
        }
    }
}

bool wait_queues::has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const {
    for (const resource_name& r : claims.resources) {
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry) {
            const auto found_queue = queues_.find(entry->second);
            if (found_queue == queues_.end()) continue;
            const auto head = found_queue->second.order.head();
            if (head < ticket && wants(waiting_.at(head).request, r)) return true;
        }
    }
    return false;
}

// --- leases that are handed over, extended or ended

wait_queues::handoff_state wait_queues::find_handoffs(const std::string& resource) const {
    const auto found = handoffs_.find(resource);
    return found == handoffs_.end() ? handoff_state{} : found->second;
}

void wait_queues::forget_expired() {
    std::erase_if(handoffs_, [now = ctx_.now.monotonic](const auto& entry) {
        return entry.second.yield_until <= now && entry.second.handoff_expires_at <= now;
    });
}

wait_queues::waiter* wait_queues::begin_handoff(const lease_claims& claims) {
    const auto found = queues_.find(first_resource(claims).str());
    if (found == queues_.end() || !claims.shared.empty()) return nullptr;
    waiter& head = head_of(found->second);
    const bool ready =
        !head.trying && !head.gets_handoff && head.request.resources == claims.resources && head.request.shared.empty();
    // A handoff must not pass over an earlier waiter for several resources: repeated handoffs would starve it.
    if (!ready || has_earlier_waiter(claims, head.ticket) || !found->second.order.begin_handoff()) return nullptr;
    head.gets_handoff = true;
    wake(head);
    return &head;
}

void wait_queues::lease_extended(const lease_claims& claims, milliseconds ttl) {
    const auto found = handoffs_.find(first_resource(claims).str());
    if (found != handoffs_.end()) found->second.handoff_expires_at = ctx_.now.monotonic + ttl;
}

void wait_queues::lease_released(const lease_claims& claims, bool others_wait) {
    // Of shared resources the nodes notify, this manager too, when the last of their holders has released them.
    for (const resource_name& r : claims.resources) {
        const auto found = queues_.find(r.str());
        const bool waits_here = found != queues_.end();
        const bool must_yield = others_wait || (waits_here && has_earlier_waiter(claims, found->second.order.head()));
        if (must_yield) {
            handoffs_[r.str()] = {0, ctx_.now.monotonic + wait_queue::yield_time, {}};
        } else {
            handoffs_.erase(r.str());
        }
        if (waits_here)
            reschedule_head_retry(found->second,
                                  ctx_.now.monotonic + found->second.order.delay_after_release(must_yield));
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry)
            schedule_head_retry(entry->second, milliseconds{0});
    }
}

void wait_queues::lease_ended(const input::lease_ended& what) {
    const auto end_in = [this, &what](const std::string& resource) {
        if (const auto found = queues_.find(resource); found != queues_.end())
            schedule_head_retry(resource, found->second.order.delay_after_end_of_lease(what.node, what.ended));
    };
    end_in(what.resource);
    const auto [first, last] = secondary_waits_.equal_range(what.resource);
    for (auto entry = first; entry != last; ++entry)
        end_in(entry->second);
}

waiting_overview wait_queues::list(std::string_view prefix) const {
    waiting_overview out;
    std::unordered_map<std::string, std::size_t> by_name;
    for (const auto& [ticket, w] : waiting_) {
        bool counts = false;
        for (const resource_name& name : all_resources(w.request)) {
            if (!name.str().starts_with(prefix)) continue;
            ++by_name[name.str()];
            counts = true;
        }
        if (counts) ++out.waiters;
    }
    out.resources.reserve(by_name.size());
    for (const auto& [name, waiters] : by_name)
        out.resources.push_back({name, waiters});
    return out;
}

}  // namespace lockcore
