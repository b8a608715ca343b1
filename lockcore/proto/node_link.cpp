#include <lockcore/invariant.hpp>
#include <proto/node_link.hpp>

#include <iterator>

namespace lockcore {

node_link::node_link(core_context& ctx, node_index index, const cluster_view& others, bool leads)
    : ctx_(ctx), index_(index), admission_(ctx, index, *this, others, leads) {}

void node_link::stop() {
    admission_.stop();
    open_ = false;
    connection_ = connection_number{static_cast<std::uint64_t>(connection_) + 1};
    ctx_.act(action::close_connection{index_});
}

// --- the connection

void node_link::open() {
    connection_ = connection_number{static_cast<std::uint64_t>(connection_) + 1};
    ctx_.act(action::open_connection{index_, connection_});
}

void node_link::drop(const std::string& reason) {
    // What still arrives from this connection is ignored.
    connection_ = connection_number{static_cast<std::uint64_t>(connection_) + 1};
    ctx_.act(action::close_connection{index_});
    lost(reason);
}

void node_link::connected(const input::connected& what) {
    if (what.connection != connection_) return;
    open_ = true;
    admission_.connected();
}

void node_link::disconnected(const input::disconnected& what) {
    if (what.connection == connection_) lost(what.reason, what.refused);
}

void node_link::lost(const std::string& reason, bool refused) {
    open_ = false;
    asked_.clear();
    const auto broken = std::exchange(in_flight_, {});
    for (const auto& b : broken) {
        no_longer_waits_for(*b);
        answer_all(*b, reply_status::broken);
    }
    admission_.disconnected(reason, refused);
}

void node_link::no_longer_waits_for(const batch& b) {
    LOCKCORE_INVARIANT(unanswered_ >= b.items.size());
    unanswered_ -= b.items.size();
}

void node_link::ask(node_request::any request, std::function<void(node_response::any)> then) {
    if (!open_) return;
    asked_.push_back(std::move(then));
    ctx_.act(action::ask_node{index_, connection_, std::move(request)});
}

void node_link::node_answered(input::node_answered what) {
    if (what.connection != connection_ || asked_.empty()) return;
    const auto then = std::move(asked_.front());
    asked_.pop_front();
    then(std::move(what.response));
}

// --- commands about leases

reply_status node_link::send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token) {
    if (!open_) return reply_status::unreachable;
    if (!is_voting()) return reply_status::not_admitted;
    const bool ends_lease = kind == command_kind::release || kind == command_kind::undo || kind == command_kind::close;
    // A node that has missed a timeout gets only commands that end leases.
    if (!ends_lease && !in_flight_.empty() && in_flight_.front()->overdue) return reply_status::timeout;
    if (unanswered_ >= ctx_.settings.node_queue_max) return reply_status::unreachable;
    queued_[static_cast<std::size_t>(kind)].push_back({std::move(target), token});
    ++unanswered_;
    ctx_.needs_flush = true;
    return reply_status::ok;
}

void node_link::flush() {
    // In the order of command_kind; `undo` is the last, after the ACQUIRE that it undoes.
    for (std::size_t k = 0; k < command_kinds; ++k) {
        std::vector<batch_item> commands = std::exchange(queued_[k], {});
        for (std::size_t at = 0; at < commands.size(); at += batch_max) {
            auto b = std::make_shared<batch>();
            b->kind = static_cast<command_kind>(k);
            const auto first = commands.begin() + static_cast<std::ptrdiff_t>(at);
            const auto last = commands.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch_max, commands.size()));
            b->items.assign(std::make_move_iterator(first), std::make_move_iterator(last));
            // TOP-UP must not be repeated (NOSCRIPT): after a RELEASE of the same hold it would restore the lease.
            b->with_source = b->kind == command_kind::top_up;
            submit(std::move(b));
        }
    }
}

void node_link::submit(std::shared_ptr<batch> b) {
    // Commands that were queued before the node lost its vote are not sent.
    if (!is_voting()) {
        no_longer_waits_for(*b);
        return answer_all(*b, reply_status::unreachable);
    }
    b->number = ctx_.next_request();
    b->sent_at = ctx_.now.monotonic;
    b->sent_in_tick = ticks_;
    ctx_.act(action::send_batch{index_, connection_, b->number, b->kind, b->items, run_id(), b->with_source});
    in_flight_.push_back(std::move(b));
}

void node_link::batch_answered(input::batch_answered what) {
    if (what.connection != connection_) return;
    // Answers arrive in the order of sending, so the batch is the first one, unless a batch was sent again.
    const auto found =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&what](const auto& b) { return b->number == what.batch; });
    if (found == in_flight_.end()) return;
    const std::shared_ptr<batch> b = std::move(*found);
    in_flight_.erase(found);

    if (what.error.starts_with("NOSCRIPT") && !b->with_source) {
        // The command had no effect. Connection and process are the same, so sending it again is no replay (R9).
        if (!b->overdue) {
            b->with_source = true;
            return submit(b);
        }
        no_longer_waits_for(*b);
        return answer_all(*b, reply_status::error);
    }
    no_longer_waits_for(*b);
    if (!what.error.empty() || what.replies.size() != b->items.size()) {
        // The node does not vote until it is identified again, which shows the cause of the refusal.
        answer_all(*b, what.error.starts_with("UNINIT") ? reply_status::not_admitted : reply_status::error);
        return admission_.on_script_error(what.error);
    }
    admission_.on_answer(std::chrono::duration_cast<std::chrono::microseconds>(ctx_.now.monotonic - b->sent_at));
    for (std::size_t i = 0; i < b->items.size(); ++i)
        b->items[i].target->on_reply(index_, b->kind, b->items[i].token, what.replies[i]);
}

void node_link::answer_all(const batch& b, reply_status status) {
    node_reply common;
    common.status = status;
    for (const batch_item& item : b.items)
        item.target->on_reply(index_, b.kind, item.token, common);
}

milliseconds node_link::unanswered_time(const batch& b) const {
    const auto whole_ticks = std::max<std::uint64_t>(ticks_ - b.sent_in_tick, 1) - 1;
    return core_context::tick_length(ctx_.settings) * static_cast<milliseconds::rep>(whole_ticks);
}

void node_link::tick() {
    ++ticks_;
    admission_.tick(!in_flight_.empty());
    if (in_flight_.empty()) return;
    if (unanswered_time(*in_flight_.front()) >= ctx_.settings.node_dead_after) return drop("does not answer");
    // on_reply may queue more commands; they are sent by the next flush, so in_flight_ does not change in this loop.
    for (const auto& b : in_flight_) {
        if (b->overdue) continue;
        if (unanswered_time(*b) < ctx_.settings.node_timeout) break;
        b->overdue = true;
        answer_all(*b, reply_status::timeout);
    }
}

}  // namespace lockcore
