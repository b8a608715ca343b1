#include <redis/node_link.hpp>

#include <hiredis/hiredis.h>
#include <boost/asio/post.hpp>

#include <algorithm>

namespace lockcore::redis {

node_link::node_link(boost::asio::io_context& io, node_index index, const config& cfg,
                     admission::collaborators services)
    : io_(io), index_(index), config_(cfg), admission_(std::make_shared<admission>(io, index, cfg, services)) {}

reply_status node_link::send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token) {
    if (!admission_->node_connection().is_open()) return reply_status::unreachable;
    if (!is_voting()) return reply_status::not_admitted;
    const bool ends_lease = kind == command_kind::release || kind == command_kind::undo || kind == command_kind::close;
    // A node that has missed a timeout gets only commands that end leases.
    if (!ends_lease && !in_flight_.empty() && in_flight_.front()->overdue) return reply_status::timeout;
    if (unanswered_ >= config_.node_queue_max) return reply_status::unreachable;
    queued_[static_cast<std::size_t>(kind)].push_back({std::move(target), token});
    ++unanswered_;
    if (!flush_posted_) {
        flush_posted_ = true;
        boost::asio::post(io_, [self = shared_from_this()] { self->flush(); });
    }
    return reply_status::ok;
}

void node_link::flush() {
    flush_posted_ = false;
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
            const bool with_source = b->kind == command_kind::top_up;
            submit(std::move(b), with_source);
        }
    }
}

void node_link::submit(std::shared_ptr<batch> b, bool with_source) {
    b->sent_at = std::chrono::steady_clock::now();
    b->sent_in_tick = ticks_;
    // Commands that were queued before the node lost its vote are not sent.
    auto on_reply = [self = shared_from_this(), b, with_source](const redisReply* r) {
        self->process_reply(b, r, with_source);
    };
    const bool sent = is_voting() && admission_->node_connection().send(
                                         format_batch(b->kind, b->items, run_id(), with_source), std::move(on_reply));
    if (sent) {
        in_flight_.push_back(std::move(b));
    } else {
        unanswered_ -= b->items.size();
        answer_all(*b, reply_status::unreachable);
    }
}

void node_link::process_reply(const std::shared_ptr<batch>& b, const redisReply* reply, bool with_source) {
    // Answers arrive in the order of sending, so the batch is the first one, unless a batch was sent again.
    const auto found = std::find(in_flight_.begin(), in_flight_.end(), b);
    if (found != in_flight_.end()) in_flight_.erase(found);

    if (!reply) {
        unanswered_ -= b->items.size();
        return answer_all(*b, reply_status::broken);
    }
    if (reply->type == REDIS_REPLY_ERROR && text_of(reply).starts_with("NOSCRIPT") && !with_source) {
        // The command had no effect. Connection and process are the same, so sending it again is no replay (R9).
        if (!b->overdue) return submit(b, true);
        unanswered_ -= b->items.size();
        return answer_all(*b, reply_status::error);
    }
    unanswered_ -= b->items.size();
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != b->items.size()) {
        // The node does not vote until it is identified again, which shows the cause of the refusal.
        const std::string error(text_of(reply));
        answer_all(*b, error.starts_with("UNINIT") ? reply_status::not_admitted : reply_status::error);
        return admission_->on_script_error(error);
    }
    const auto now = std::chrono::steady_clock::now();
    admission_->on_answer(now, std::chrono::duration_cast<std::chrono::microseconds>(now - b->sent_at));
    for (std::size_t i = 0; i < b->items.size(); ++i)
        b->items[i].target->on_reply(index_, b->kind, b->items[i].token,
                                     parse_reply(b->kind, text_of(reply->element[i])));
}

void node_link::answer_all(const batch& b, reply_status status) {
    node_reply common;
    common.status = status;
    for (const batch_item& item : b.items)
        item.target->on_reply(index_, b.kind, item.token, common);
}

milliseconds node_link::unanswered_time(const batch& b) const {
    const auto whole_ticks = std::max<std::uint64_t>(ticks_ - b.sent_in_tick, 1) - 1;
    return tick_length(config_) * static_cast<milliseconds::rep>(whole_ticks);
}

void node_link::tick(monotonic_time now) {
    ++ticks_;
    admission_->tick(now, !in_flight_.empty());
    if (in_flight_.empty()) return;
    if (unanswered_time(*in_flight_.front()) >= config_.node_dead_after)
        return admission_->drop_connection("does not answer");
    // on_reply may queue more commands; they are sent after this turn, so in_flight_ does not change in this loop.
    for (const auto& b : in_flight_) {
        if (b->overdue) continue;
        if (unanswered_time(*b) < config_.node_timeout) break;
        b->overdue = true;
        answer_all(*b, reply_status::timeout);
    }
}

}  // namespace lockcore::redis
