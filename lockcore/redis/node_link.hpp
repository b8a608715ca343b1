#pragma once

#include <redis/admission.hpp>
#include <redis/lease_call.hpp>
#include <redis/script_set.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

namespace lockcore::redis {

/// One shard's way to one node: sends the commands of one loop turn together, and gives every command an answer within
/// `node_timeout`. Nothing is sent before `admission` lets the node vote, and nothing built for one run id is sent on
/// another connection (R9).
///
/// Threads: everything but status() on the thread of `io`. Lifetime: by shared_ptr; close() before the io_context ends.
/// Limits: `node_queue_max` commands without an answer; batch_max commands in one script call.
class node_link : public std::enable_shared_from_this<node_link> {
  public:
    /// Commands that travel in one script call at most: it blocks the node for about 0.2 ms.
    static constexpr std::size_t batch_max = 32;

    node_link(boost::asio::io_context& io, node_index index, const config& cfg, admission::collaborators with);

    void open() { admission_->start(); }
    void close() { admission_->stop(); }

    /// Queues a command for the end of this loop turn.
    ///
    /// Out: `ok` if it was queued, and its answer will come by on_reply; else the answer itself: nothing was sent.
    reply_status send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token);

    /// How often tick() is to be called: a node's timeout is kept to within this.
    static milliseconds tick_length(const config& cfg) {
        return std::clamp(cfg.node_timeout / 8, milliseconds{2}, milliseconds{25});
    }
    /// Looks for answers that are overdue. A node's silence is counted in ticks: while the gateway itself stands still
    /// (a busy machine, a paused virtual one) it reads no answers, and that time does not count against the nodes.
    void tick(monotonic_time now);

    bool votes() const { return admission_->votes(); }
    const std::string& run_id() const { return admission_->run_id(); }
    epoch epoch_seen() const { return admission_->epoch_seen(); }
    const std::string& name() const { return admission_->link().address().name; }
    /// Threads: safe.
    node_status status() const { return admission_->status(); }

  private:
    /// Commands that left together.
    struct batch {
        command_kind kind{};
        std::vector<batch_item> items;
        monotonic_time sent_at;
        std::uint64_t sent_in_tick = 0;
        bool overdue = false;  ///< Its commands were answered `timeout` already.
    };

    void flush();
    void submit(std::shared_ptr<batch> b, bool with_text);
    void answered(const std::shared_ptr<batch>& b, const redisReply* reply, bool with_text);
    void answer_all(const batch& b, reply_status status);
    /// At most the time since it was sent.
    milliseconds silence(const batch& b) const;

    boost::asio::io_context& io_;
    node_index index_;
    const config& config_;
    std::shared_ptr<admission> admission_;
    std::array<std::vector<batch_item>, command_kinds> lanes_;
    bool flush_posted_ = false;
    std::size_t unanswered_ = 0;
    std::uint64_t ticks_ = 0;
    std::deque<std::shared_ptr<batch>> in_flight_;  ///< In order of sending.
};

}  // namespace lockcore::redis
