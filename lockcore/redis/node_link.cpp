#include <redis/node_link.hpp>

#include <hiredis/hiredis.h>
#include <boost/asio/post.hpp>

#include <algorithm>

namespace lockcore::redis {

node_link::node_link(boost::asio::io_context& io, node_index index, const config& cfg, admission::collaborators with)
    : io_(io), index_(index), config_(cfg), admission_(std::make_shared<admission>(io, index, cfg, with)) {}

reply_status node_link::send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token) {
    if (!admission_->link().is_open()) return reply_status::unreachable;
    if (!votes()) return reply_status::not_admitted;
    const bool gives_back = kind == command_kind::release || kind == command_kind::undo || kind == command_kind::close;
    // A node that owes answers gets nothing new but what gives leases back.
    if (!gives_back && !in_flight_.empty() && in_flight_.front()->overdue) return reply_status::timeout;
    if (unanswered_ >= config_.node_queue_max) return reply_status::unreachable;
    lanes_[static_cast<std::size_t>(kind)].push_back({std::move(target), token});
    ++unanswered_;
    if (!flush_posted_) {
        flush_posted_ = true;
        boost::asio::post(io_, [self = shared_from_this()] { self->flush(); });
    }
    return reply_status::ok;
}

void node_link::flush() {
    flush_posted_ = false;
    // Lanes go in the order of command_kind; undo last, behind its own ACQUIRE.
    for (std::size_t k = 0; k < command_kinds; ++k) {
        std::vector<batch_item> lane = std::exchange(lanes_[k], {});
        for (std::size_t at = 0; at < lane.size(); at += batch_max) {
            auto b = std::make_shared<batch>();
            b->kind = static_cast<command_kind>(k);
            const auto first = lane.begin() + static_cast<std::ptrdiff_t>(at);
            const auto last = lane.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch_max, lane.size()));
            b->items.assign(std::make_move_iterator(first), std::make_move_iterator(last));
            // TOP-UP must not be sent again, behind a RELEASE of the same hold: it would put the lease back.
            const bool with_text = b->kind == command_kind::top_up;
            submit(std::move(b), with_text);
        }
    }
}

void node_link::submit(std::shared_ptr<batch> b, bool with_text) {
    b->sent_at = std::chrono::steady_clock::now();
    b->sent_in_tick = ticks_;
    // What was queued before the node lost its vote is not sent any more.
    const bool sent = votes() && admission_->link().send(format_batch(b->kind, b->items, run_id(), with_text),
                                                         [self = shared_from_this(), b, with_text](
                                                             const redisReply* r) { self->answered(b, r, with_text); });
    if (sent) {
        in_flight_.push_back(std::move(b));
    } else {
        unanswered_ -= b->items.size();
        answer_all(*b, reply_status::unreachable);
    }
}

void node_link::answered(const std::shared_ptr<batch>& b, const redisReply* reply, bool with_text) {
    // Answers come in the order of sending, so it is the front but where a resent batch mixes them.
    const auto mine = std::find(in_flight_.begin(), in_flight_.end(), b);
    if (mine != in_flight_.end()) in_flight_.erase(mine);

    if (!reply) {
        unanswered_ -= b->items.size();
        return answer_all(*b, reply_status::broken);
    }
    if (reply->type == REDIS_REPLY_ERROR && text_of(reply).starts_with("NOSCRIPT") && !with_text && !b->overdue) {
        // Had no effect; the same connection and process, so this is no replay (R9).
        return submit(b, true);
    }
    unanswered_ -= b->items.size();
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != b->items.size()) {
        // Whatever made the node refuse will show when it is looked at again; until then it does not vote.
        const std::string why(text_of(reply));
        answer_all(*b, why.starts_with("UNINIT") ? reply_status::not_admitted : reply_status::error);
        return admission_->refused(why);
    }
    const auto now = std::chrono::steady_clock::now();
    admission_->heard(now, std::chrono::duration_cast<std::chrono::microseconds>(now - b->sent_at));
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

milliseconds node_link::silence(const batch& b) const {
    const auto whole_ticks = std::max<std::uint64_t>(ticks_ - b.sent_in_tick, 1) - 1;
    return tick_length(config_) * static_cast<milliseconds::rep>(whole_ticks);
}

void node_link::tick(monotonic_time now) {
    ++ticks_;
    admission_->tick(now, !in_flight_.empty());
    if (in_flight_.empty()) return;
    if (silence(*in_flight_.front()) >= config_.node_dead_after) return admission_->give_up("does not answer");
    // Being told of a timeout may queue more commands, which leave after this turn: the list does not change meanwhile.
    for (const auto& b : in_flight_) {
        if (b->overdue) continue;
        if (silence(*b) < config_.node_timeout) break;
        b->overdue = true;
        answer_all(*b, reply_status::timeout);
    }
}

}  // namespace lockcore::redis
