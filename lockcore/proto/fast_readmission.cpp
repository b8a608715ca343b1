#include <proto/fast_readmission.hpp>

#include <lockcore/types.hpp>
#include <proto/epochs.hpp>

#include <algorithm>
#include <utility>

namespace lockcore {

bool lease_merge::add(std::size_t source, const lease_copy& copy) {
    auto record = lease_record::parse(copy.value);
    // No lease is valid for longer than its ttl; a clock that was set back makes a key live longer (CLOCK SET BACK).
    const milliseconds longest = record ? std::min(record->ttl, longest_) : longest_;
    if (record && (record->is_block() || epoch_of(record->token) > highest_)) record.reset();
    const std::size_t tab = copy.resource.rfind(resource_name::separator);
    const auto sharing = nonce::parse(std::string_view(copy.resource).substr(tab + 1));
    const bool shared = tab != std::string::npos && sharing.has_value();
    if (shared && record && record->attempt_id != *sharing) record.reset();
    const std::string resource = shared ? copy.resource.substr(0, tab) : copy.resource;
    std::vector<copies>& found = leases_[resource];
    auto same = std::ranges::find_if(found, [&](const copies& c) {
        return c.lease.has_value() == record.has_value() &&
               (!record || (c.shared == shared && c.lease->is_same_lease(*record)));
    });
    const bool is_new = same == found.end();
    if (is_new || same->sources.test(source)) bytes_ += copy.resource.size() + copy.value.size();
    const auto known = static_cast<std::size_t>(is_new ? std::ranges::count(found, shared, &copies::shared) : 0);
    if (bytes_ > bytes_max || known == (shared ? shared_max : leases_max)) {
        if (found.empty()) leases_.erase(resource);
        return false;
    }
    if (is_new) {
        found.push_back({std::move(record), shared, {}, {}});
        same = std::prev(found.end());
    } else if (record) {
        lease_record& merged = *same->lease;
        merged.merge(*record);
        merged.token = std::max(merged.token, record->token);
        merged.renewals = std::max(merged.renewals, record->renewals);
        merged.held = std::max(merged.held, record->held);
        merged.ttl = std::max(merged.ttl, record->ttl);
    }
    same->sources.set(source);
    const milliseconds remaining = copy.remaining < milliseconds{0} ? longest_ : std::min(copy.remaining, longest);
    same->remaining = std::max(same->remaining, remaining);
    return true;
}

void lease_merge::choose(const std::string& resource, std::vector<copies>& found) {
    node_set unreadable;
    for (const copies& c : found)
        if (!c.lease) unreadable |= c.sources;
    const std::size_t unknown = not_read_ + unreadable.count();
    std::vector<copies*> valid;  // those that may be
    bool has_exclusive = false;
    for (copies& c : found) {
        if (!c.lease || c.sources.count() + unknown < quorum_) continue;
        has_exclusive = has_exclusive || !c.shared;
        valid.push_back(&c);
    }
    // A PTTL of 0 ms means less than one.
    constexpr milliseconds rounding{1};
    // With a majority of unknown nodes a lease may be valid of which no copy was read.
    if (unknown >= quorum_ || (has_exclusive && valid.size() > 1)) {
        const milliseconds remaining = std::ranges::max_element(found, {}, &copies::remaining)->remaining + rounding;
        chosen_.push_back({resource, remaining, lease_record::make_block(random_, remaining).format()});
        return;
    }
    for (copies* c : valid) {
        if (c->lease->holds.count() == 0) continue;
        c->lease->stamp = 0;
        std::string key = resource;
        if (c->shared) key.append(1, resource_name::separator).append(c->lease->attempt_id.str());
        chosen_.push_back({std::move(key), c->remaining + rounding, c->lease->format()});
    }
}

std::vector<lease_copy> lease_merge::take(std::size_t at_most) {
    std::vector<lease_copy> out;
    while (out.size() < at_most && (!chosen_.empty() || !leases_.empty())) {
        if (chosen_.empty()) {
            auto next = leases_.extract(leases_.begin());
            choose(next.key(), next.mapped());
        } else {
            out.push_back(std::move(chosen_.front()));
            chosen_.pop_front();
        }
    }
    return out;
}

namespace {

constexpr const char* node_changed = "";  // what finished_function gets then

}  // namespace

fast_readmission::fast_readmission(core_context& ctx, std::string run_id, ask_function ask_node,
                                   std::vector<source> sources, epoch highest, std::string own_mark,
                                   finished_function finished)
    : ctx_(ctx),
      run_id_(std::move(run_id)),
      ask_node_(std::move(ask_node)),
      sources_(std::move(sources)),
      finished_(std::move(finished)),
      own_mark_(std::move(own_mark)),
      leases_(ctx.random, ctx.settings.nodes.size(), sources_.size(), ctx.settings.max_ttl, highest) {}

fast_readmission::~fast_readmission() {
    ctx_.timers.cancel(timer_);
}

template <class Response>
void fast_readmission::ask(const ask_function& node, node_request::any request,
                           std::function<void(fast_readmission&, Response)> then) {
    set_deadline();
    node(std::move(request), [self = weak_from_this(), then = std::move(then)](node_response::any response) {
        if (const auto live = self.lock(); live && live->finished_)
            then(*live, std::get<Response>(std::move(response)));
    });
}

void fast_readmission::set_deadline() {
    wait(ctx_.settings.node_dead_after, [this] { fail("a node did not answer in time"); });
}

void fast_readmission::start() {
    const std::string digits(nonce::from_bits(ctx_.random.next(), ctx_.random.next()).str());
    ask<node_response::text>(
        ask_node_, node_request::mark{digits},
        [digits](fast_readmission& self, const node_response::text& answer) { self.marked(answer, digits); });
}

void fast_readmission::marked(const node_response::text& answer, const std::string& digits) {
    if (!answer.refusal.empty()) return fail(answer.refusal);
    if (!answer.value.starts_with(run_id_ + ' ')) return fail(node_changed);
    mark_ = answer.value;
    // Every grant and renewal that counts an answer of the life before is complete after this time.
    const milliseconds bound = ctx_.settings.answer_bound;
    note_if_own(mark_, digits);
    const bool is_own = mark_ == own_mark_;
    wait(bound + std::chrono::ceil<milliseconds>(bound / 100.0) + milliseconds{2}, [this, is_own] {
        if (is_own) return read_all();
        await_other_gateway(ctx_.now.monotonic + other_gateway_timeout);
    });
}

void fast_readmission::note_if_own(const std::string& mark, const std::string& digits) {
    if (mark.ends_with(digits)) own_mark_ = mark;
}

void fast_readmission::await_other_gateway(monotonic_time until) {
    if (ctx_.now.monotonic >= until) return read_all();
    const std::string digits(nonce::from_bits(ctx_.random.next(), ctx_.random.next()).str());
    ask<node_response::text>(ask_node_, node_request::mark{digits},
                             [until, digits](fast_readmission& self, const node_response::text& answer) {
                                 if (!answer.refusal.empty()) return self.fail(answer.refusal);
                                 self.note_if_own(answer.value, digits);
                                 if (answer.value != self.mark_) return self.fail(node_changed);
                                 self.wait(recheck_interval, [&self, until] { self.await_other_gateway(until); });
                             });
}

void fast_readmission::wait(milliseconds delay, std::function<void()> then) {
    ctx_.timers.cancel(timer_);
    timer_ = ctx_.timers.set(ctx_.now.monotonic + delay, std::move(then));
}

void fast_readmission::read_all() {
    reading_ = sources_.size();
    for (std::size_t from = 0; from < sources_.size(); ++from)
        read_page(from, {}, "0");
}

void fast_readmission::read_page(std::size_t from, std::string base, const std::string& cursor) {
    ask<node_response::lease_page>(
        sources_[from].ask, node_request::read_leases{sources_[from].run_id, std::move(base), cursor, page_size},
        [from](fast_readmission& self, node_response::lease_page page) { self.page_read(from, std::move(page)); });
}

void fast_readmission::page_read(std::size_t from, node_response::lease_page page) {
    // A node that lost its vote may have forgotten what it answered before.
    if (!page.refusal.empty()) return fail("a node that votes could not be read: " + page.refusal);
    for (const lease_copy& copy : page.leases) {
        if (!leases_.add(from, copy)) return fail("there are more leases than can be copied");
    }
    if (page.cursor != "0") return read_page(from, std::move(page.base), page.cursor);
    if (--reading_ > 0) return;
    install_more();
}

void fast_readmission::install_more() {
    while (installing_ < installs_max) {
        node_request::install request{run_id_, mark_, leases_.take(page_size)};
        if (request.leases.empty()) break;
        ++installing_;
        ask<node_response::text>(ask_node_, std::move(request),
                                 [](fast_readmission& self, const node_response::text& answer) {
                                     if (!answer.refusal.empty()) return self.fail(answer.refusal);
                                     if (answer.value != "OK") return self.fail(node_changed);
                                     --self.installing_;
                                     self.install_more();
                                 });
    }
    if (installing_ == 0) finish(mark_);
}

void fast_readmission::fail(std::string reason) {
    finish(make_failure(errc::no_quorum, std::move(reason)));
}

void fast_readmission::finish(result<std::string> outcome) {
    ctx_.timers.cancel(timer_);
    // The receiver may drop this object.
    if (const auto receiver = std::exchange(finished_, nullptr)) receiver(std::move(outcome));
}

}  // namespace lockcore
