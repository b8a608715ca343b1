#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/connection/text_receiver.hpp>
#include <gateway/pg/write/transaction_plan.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// PostgreSQL's answers to the steps of a transaction.
struct transcript {
    std::vector<answer_rows> answers{};            ///< In order, up to the first step that failed or was not sent.
    std::map<std::size_t, text_receiver> texts{};  ///< By step: rows and values, which are not in `answers`.
    std::optional<server_error> error{};           ///< The error of the step `failed`.
    std::size_t failed = 0;                        ///< Meaningful only with `error`.
    bool unprepared = false;                       ///< The step `failed` could not be prepared.
    bool sent = false;                             ///< At least one statement was sent: a transaction may be open.
    bool out_of_time = false;  ///< The step after the last answer was not sent because the deadline had passed.
};

/// Why a write was refused.
struct write_refusal {
    step_kind step = step_kind::begin;
    std::optional<std::string> sqlstate{};  ///< Empty: PostgreSQL has refused no statement.
    failure why{};
    std::optional<result<write_outcome>> earlier{};  ///< The outcome kept under its key; replaces `why`.
};

/// The result of one write before COMMIT. Neither outcome nor refusal: an earlier step failed.
struct write_verdict {
    std::optional<write_outcome> outcome{};
    std::optional<write_refusal> refusal{};
    bool unchanged = false;  ///< Its operations are known to have changed nothing.
};

enum class batch_change {
    stays,    ///< The write stays in the transaction.
    leaves,   ///< The write is removed and tried again isolated.
    refused,  ///< The write is removed: its refusal is final, because nothing that is rolled back could change it.
    presumed_refused,  ///< The write stays, as planned_write::presumed_refused.
    refused_in_place,  ///< The write stays: its refusal is final if the transaction commits, to which it adds nothing.
};

/// Whether a statement waited for too long, for a lock or else, or was the victim of a deadlock.
bool is_timeout_or_deadlock(std::string_view sqlstate);

/// What to do next with a transaction of several writes.
struct batch_verdict {
    bool complete = false;  ///< All writes succeeded or are refused in place: the transaction can be committed.
    std::vector<batch_change> changes{};              ///< One for each write.
    std::map<std::size_t, write_outcome> outcomes{};  ///< Of those that succeeded, by their index.
    std::map<std::size_t, write_refusal> refusals{};  ///< Of those that are refused, also in place, by their index.
    bool separate_guards = false;           ///< A joined guard step failed: enter the resources one by one next time.
    bool separate_updates = false;          ///< A joined update failed: update one by one next time.
    bool separate_checks = false;           ///< What several writes have deferred failed: run it write by write.
    std::vector<std::string> unjoinable{};  ///< planned_joined_update::single_update.
    bool waited = false;                    ///< A statement exceeded its timeout, or was a deadlock's victim.
};

/// How the transaction of a refused isolated write ends.
enum class refusal_end {
    none,    ///< It has ended already.
    commit,  ///< Commits the history's row that the guard wrote.
    rollback,
    rollback_to_savepoint  ///< The refusal is kept under the write's key.
};
struct refusal_handling {
    refusal_end end = refusal_end::rollback;
    bool drop_session = false;             ///< The guard could not be called.
    std::optional<history_item> record{};  ///< The history's row to add; empty: it exists, or none is needed.
};

/// Whether an operation's answer arrives in pieces for a text_receiver.
bool gives_text(answer_shape shape);

/// Whether code of an application may have run in the transaction, which may have done what no rollback undoes.
bool executed_user_code(const transaction_plan& plan, const transcript& seen);

/// Whether the answer to the step at `index` of `plan` allows the following steps to be sent.
bool allows_next(const transaction_plan& plan, const transcript& seen, std::size_t index);

/// Returns the result of an operation from its answer. `text`: the receiver where gives_text(shape), whose text is
/// moved out.
///
/// Errors: overloaded, where the text did not fit into the answers' budget.
result<operation_result> read_result(answer_shape shape, const answer_rows& rows, text_receiver* text);

/// Returns the result of an isolated write. Moves the texts out of `seen`. Throws std::exception where an answer does
/// not have the form of the statement's result.
write_verdict evaluate_write(const transaction_plan& plan, const planned_write& write, transcript& seen);

/// Returns what to do next with a transaction of several writes. Moves the texts out of `seen`; throws as
/// evaluate_write does.
///
/// Out:     a write that fails leaves; it is refused if it failed only its expect_rows, and neither it nor an earlier
///          write on its resources has changed a row. If an earlier one has, under the same lease, it is presumed
///          refused, and in the next run refused in place. Where a step for several writes failed, all stay and are
///          tried one by one; where it concerns no write, all leave.
batch_verdict evaluate_batch(const transaction_plan& plan, const std::vector<planned_write>& writes, transcript& seen);

/// Returns the refusal for an error of PostgreSQL at `step`; null: at COMMIT.
write_refusal refuse_for_error(const server_error& error, const transaction_step* step);

/// Returns the history's row of a write that failed at `now`.
history_item failed_item(const write_request& request, const write_refusal& refusal,
                         std::chrono::system_clock::time_point now);

/// Decides how the transaction of an isolated write ends that was refused at `now`.
/// May replace `refusal.why`. A pure function.
refusal_handling handle_refusal(const write_request& request, write_refusal& refusal,
                                std::chrono::system_clock::time_point now);

}  // namespace fencegate::pg
