#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/server_error.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/text_receiver.hpp>
#include <gateway/pg/write/transaction_plan.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// What PostgreSQL answered to a transaction's steps.
struct transcript {
    std::vector<answer_rows> answers{};            ///< In order, up to the first step that failed or was not sent.
    std::map<std::size_t, text_receiver> texts{};  ///< By step: rows and values, whose answers have none.
    std::optional<server_error> error{};           ///< Of the step `failed`.
    std::size_t failed = 0;                        ///< With `error` alone.
    bool sent = false;                             ///< Something was: a transaction may be open.
    bool out_of_time = false;                      ///< The step behind the last answer was not sent for that reason.
};

/// Why a write is not done.
struct write_refusal {
    step_kind at = step_kind::begin;
    std::string sqlstate;  ///< Empty: PostgreSQL ran the statement.
    failure why;
    std::optional<result<write_outcome>> earlier{};  ///< What its key stands for, in place of `why`.
};

/// What became of one write before COMMIT. Neither: it was not its turn yet.
struct write_verdict {
    std::optional<write_outcome> outcome{};
    std::optional<write_refusal> refusal{};
};

enum class batch_change {
    stays,
    leaves,           ///< To be tried again isolated.
    exceeds_timeout,  ///< The same; it waits for a lock, or is slow, and must not hold up others.
};

/// What to do next with a transaction of several writes.
struct batch_verdict {
    bool complete = false;                  ///< All are done: it can be committed.
    std::vector<batch_change> changes{};    ///< One a write.
    std::vector<write_outcome> outcomes{};  ///< The same; of use where it is complete.
    bool separate_guards = false;           ///< What failed does not say for whom: next time one by one.
    bool separate_updates = false;
    std::vector<std::string> refused_shapes{};  ///< Updates that can't be one statement.
    bool waited = false;                        ///< A statement ran into its timeout.
};

/// How a transaction ends in which an isolated write was refused.
enum class refusal_end {
    none,    ///< It has ended.
    commit,  ///< With the history's row that the guard wrote.
    rollback,
    rollback_to_savepoint  ///< The refusal is kept under the write's key.
};
struct refusal_handling {
    refusal_end end = refusal_end::rollback;
    bool drop_session = false;             ///< The guard could not be called.
    std::optional<history_item> record{};  ///< Empty: the history has it, or says nothing of it.
};

/// Whether an operation's answer comes in pieces, which a text_receiver takes.
bool gives_text(answer_shape shape);

/// Whether the step at `index` of `plan`, which was answered, did what lets the steps behind it be sent.
bool allows_next(const transaction_plan& plan, const transcript& seen, std::size_t index);

/// A statement's answer as the caller gets it. `text`: where its shape gives text, which is taken. Errors: overloaded,
/// where the answers' budget had no room for it.
result<operation_result> read_result(answer_shape shape, const answer_rows& rows, text_receiver* text);

/// What became of an isolated write. Takes the texts out of `seen`. Throws std::exception where an answer is not what
/// the statement gives.
write_verdict evaluate_write(const transaction_plan& plan, const planned_write& write, transcript& seen);

/// What becomes of a transaction of several writes. As above.
///
/// Out:     whoever did not do what it should leaves; where it can't be told who that is, all stay and are tried one by
///          one.
batch_verdict evaluate_batch(const transaction_plan& plan, const std::vector<planned_write>& writes, transcript& seen);

/// The refusal for a step that PostgreSQL refused; null: for COMMIT.
write_refusal refuse_for_error(const server_error& error, const transaction_step* step);

/// How the transaction of an isolated write ends that was refused at `now`. `refusal.why` may become another one. Pure.
refusal_handling handle_refusal(const write_request& request, write_refusal& refusal,
                                std::chrono::system_clock::time_point now);

}  // namespace fencegate::pg
