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

/// Sends the commands of one shard to one node, the commands of one loop turn together, and answers every command
/// within `node_timeout`. It sends commands only while the node votes, and a command made for one run id is never sent
/// on another connection (R9).
///
/// Threads:  everything but status() on the thread of `io`.
/// Lifetime: by shared_ptr; close() before the io_context ends.
/// Limits:   `node_queue_max` commands without an answer; batch_max commands in one script call.
class node_link : public std::enable_shared_from_this<node_link> {
  public:
    /// The largest number of commands in one script call, which blocks the node for about 0.2 ms.
    static constexpr std::size_t batch_max = 32;

    node_link(boost::asio::io_context& io, node_index index, const config& cfg, admission::collaborators services);

    void open() { admission_->start(); }
    void close() { admission_->stop(); }

    /// Queues a command, which is sent at the end of this loop turn.
    ///
    /// Out: `ok` if it was queued: on_reply gets its answer. Any other value is the answer: the command is not sent.
    reply_status send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token);

    /// Returns the interval for tick(); a timeout is late by one interval at most.
    static milliseconds tick_length(const config& cfg) {
        return std::clamp(cfg.node_timeout / 8, milliseconds{2}, milliseconds{25});
    }
    /// Answers commands whose timeout is over. Timeouts are counted in ticks: time in which this process does not run
    /// (a busy machine, a paused virtual machine) does not count, for it reads no answers then.
    void tick(monotonic_time now);

    bool is_voting() const { return admission_->is_voting(); }
    const std::string& run_id() const { return admission_->run_id(); }
    epoch observed_epoch() const { return admission_->observed_epoch(); }
    const std::string& name() const { return admission_->node_connection().address().name; }
    /// Threads: safe.
    node_status status() const { return admission_->status(); }

  private:
    /// The commands of one script call.
    struct batch {
        command_kind kind{};
        std::vector<batch_item> items;
        monotonic_time sent_at;
        std::uint64_t sent_in_tick = 0;
        bool overdue = false;  ///< Its commands have been answered with `timeout`.
    };

    void flush();
    /// `with_source`: sends the text of the script (EVAL) instead of its SHA-1 (EVALSHA).
    void submit(std::shared_ptr<batch> b, bool with_source);
    void process_reply(const std::shared_ptr<batch>& b, const redisReply* reply, bool with_source);
    void answer_all(const batch& b, reply_status status);
    /// Returns the time since the batch was sent, in whole ticks, rounded down.
    milliseconds unanswered_time(const batch& b) const;

    boost::asio::io_context& io_;
    node_index index_;
    const config& config_;
    std::shared_ptr<admission> admission_;
    std::array<std::vector<batch_item>, command_kinds> queued_;  ///< By command_kind.
    bool flush_posted_ = false;
    std::size_t unanswered_ = 0;
    std::uint64_t ticks_ = 0;
    std::deque<std::shared_ptr<batch>> in_flight_;  ///< In the order of sending.
};

}  // namespace lockcore::redis
