#include <gateway/pg/write/kept_outcome.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

/// Refusals that follow from the request and the data alone. Not stale_fencing_token, resource_not_covered and
/// fencing_required: they follow from the lease, and with another lease the same request may succeed.
constexpr std::array kept_refusals{errc::expectation_failed, errc::constraint_violation, errc::unprocessable};

/// The three array parameters that identify keys.
class key_columns {
  public:
    void add(const std::string& principal, const idempotency_key& key) {
        principals_.add(principal);
        keys_.add(key.key);
        fingerprints_.add("\\x" + key.fingerprint);
    }
    compat::parameters take() { return {principals_.take(), keys_.take(), fingerprints_.take()}; }

  private:
    array_text principals_;
    array_text keys_;
    array_text fingerprints_;
};

json::value write_kept_failure(const write_request& request, const failure& why) {
    json::object out;
    out["refusal"] = slug_of(why.code);
    out["detail"] = why.detail;
    json::array errors;
    for (const auto& error : why.errors)
        errors.push_back({{"pointer", error.pointer}, {"detail", error.detail}});
    out["errors"] = std::move(errors);
    out["facts"] = why.facts;
    out["facts"].as_object()["write_id"] = request.write_id;
    return out;
}

/// Rows and values are kept as strings, so that no digit of their numbers is lost.
json::value write_kept_outcome(const write_outcome& outcome, bool rows_left_out) {
    json::object out;
    out["write_id"] = outcome.write_id;
    out["token"] = lockcore::value_of(outcome.token);
    json::array fences;
    for (const auto& fence : outcome.fences)
        fences.push_back({{"resource", fence.resource}, {"last", fence.last_fencing_token}});
    out["fences"] = std::move(fences);
    json::array results;
    for (const auto& operation : outcome.results) {
        json::object result;
        if (operation.is_call) {
            result["call"] = true;
            if (operation.is_void) result["void"] = true;
        } else {
            result["affected"] = operation.rows_affected;
            if (operation.total) result["total"] = *operation.total;
        }
        if (!rows_left_out && !operation.json.empty()) result["json"] = operation.json;
        results.push_back(std::move(result));
    }
    out["results"] = std::move(results);
    if (outcome.sealed) out["sealed"] = true;
    if (rows_left_out) out["rows_left_out"] = true;
    return out;
}

std::string text_of(const json::value& value) {
    return json::value_to<std::string>(value);
}

failure read_kept_failure(const json::object& kept) {
    const auto& slug = kept.at("refusal").as_string();
    const auto code = std::ranges::find_if(kept_refusals, [&](errc refusal) { return slug == slug_of(refusal); });
    if (code == kept_refusals.end()) throw std::invalid_argument("an unknown refusal");
    failure out = make_failure(*code, text_of(kept.at("detail")));
    for (const auto& error : kept.at("errors").as_array())
        out.errors.push_back({text_of(error.at("pointer")), text_of(error.at("detail"))});
    out.facts = kept.at("facts").as_object();
    out.replayed = out.durability_unproven = true;
    return out;
}

write_outcome read_kept_outcome(const json::object& kept) {
    write_outcome out;
    out.write_id = text_of(kept.at("write_id"));
    out.token = lockcore::fencing_token{kept.at("token").to_number<std::uint64_t>()};
    for (const auto& fence : kept.at("fences").as_array())
        out.fences.push_back({text_of(fence.at("resource")), fence.at("last").to_number<std::uint64_t>()});
    for (const auto& item : kept.at("results").as_array()) {
        const auto& result = item.as_object();
        auto& read = out.results.emplace_back();
        read.is_call = result.contains("call");
        read.is_void = result.contains("void");
        if (!read.is_call) read.rows_affected = result.at("affected").to_number<std::int64_t>();
        if (const auto* total = result.if_contains("total")) read.total = total->to_number<std::int64_t>();
        if (const auto* text = result.if_contains("json")) read.json = text_of(*text);
    }
    out.sealed = kept.contains("sealed");
    out.rows_left_out = kept.contains("rows_left_out");
    out.replayed = true;
    return out;
}

}  // namespace

bool is_kept(const failure& why) {
    // A name or type that the database does not know may be about to be created, or may just have been dropped.
    const auto* sqlstate = why.facts.if_contains("sqlstate");
    const bool unknown = sqlstate != nullptr && sqlstate->as_string().starts_with("42");
    return !why.outcome_unknown && !unknown && std::ranges::find(kept_refusals, why.code) != kept_refusals.end();
}

std::string write_kept(const write_request& request, const result<write_outcome>& value) {
    if (!value) return json::serialize(write_kept_failure(request, value.error()));
    std::size_t size = 0;
    for (const auto& operation : value->results)
        size += operation.json.size();
    if (size <= kept_bytes_max) {
        auto whole = json::serialize(write_kept_outcome(*value, false));
        if (whole.size() <= kept_bytes_max) return whole;
    }
    return json::serialize(write_kept_outcome(*value, true));
}

result<write_outcome> read_kept(std::string_view text) {
    try {
        const auto kept = json::parse({text.data(), text.size()});
        if (!has_finite_numbers(kept)) throw std::invalid_argument("a number out of range");
        const auto& members = kept.as_object();
        if (members.contains("refusal")) return read_kept_failure(members);
        return read_kept_outcome(members);
    } catch (const std::exception& e) {
        spdlog::error("a kept outcome can't be read: {}", e.what());
        return make_failure(errc::internal_error,
                            "The outcome kept under this Idempotency-Key can't be read; nothing was done.");
    }
}

compat::parameters claim_keys_parameters(const std::vector<const write_request*>& requests) {
    key_columns columns;
    for (const auto* request : requests)
        columns.add(request->initiator.principal, *request->key);
    return columns.take();
}

std::optional<result<write_outcome>> read_key_state(std::string_view state, std::string_view outcome) {
    if (state == "new") return std::nullopt;
    if (state == "kept") return read_kept(outcome);
    if (state == "other") {
        failure out = make_failure(errc::idempotency_mismatch,
                                   "The Idempotency-Key was used before for another request; nothing was done.");
        out.durability_unproven = true;
        return out;
    }
    return make_failure(errc::idempotency_in_progress,
                        "A call with this Idempotency-Key is still under way; nothing was done by this one.");
}

compat::parameters key_parameters(const std::vector<const outcome_key*>& keys) {
    key_columns columns;
    for (const auto* key : keys)
        columns.add(key->principal, key->caller_key);
    return columns.take();
}

compat::parameters keep_outcomes_parameters(const std::vector<outcome_to_keep>& outcomes) {
    std::vector<const write_request*> requests;
    array_text texts;
    for (const auto& outcome : outcomes) {
        requests.push_back(outcome.request);
        texts.add(outcome.text);
    }
    auto out = claim_keys_parameters(requests);
    out.emplace_back(texts.take());
    out.emplace_back(std::to_string(requests.front()->key->keep_for.count()));
    return out;
}

}  // namespace fencegate::pg
