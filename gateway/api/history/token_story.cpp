#include <gateway/api/history/token_story.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/rfc3339.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <utility>

namespace fencegate::api {
namespace {

using std::chrono::system_clock;

std::optional<std::chrono::milliseconds> ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    if (ttl == nullptr || !ttl->is_int64()) return std::nullopt;
    return std::chrono::milliseconds(ttl->get_int64());
}

}  // namespace

void token_story::add(history_item item) {
    ++events_;
    const auto& event = item.event;
    if (event == "lease_granted" || event == "lease_renewed") {
        if (event == "lease_granted" && !granted_) granted_ = item;
        if (event == "lease_renewed") ++renewals_;
        if (const auto ttl = ttl_of(item)) runs_until_ = item.at + *ttl;
    } else if (event == "lease_released" || event == "lease_revoked" || event == "lease_expired") {
        ended_ = item;
    } else if (event == "write_applied") {
        ++applied_;
    } else if (event == "write_rejected") {
        ++rejected_;
    } else if (event == "write_failed") {
        ++failed_;
    }
    if (shown_.size() < shown_max) shown_.push_back(std::move(item));
}

std::string_view token_story::end(bool live, bool whole) const {
    if (live) return "live";
    if (ended_) {
        return ended_->event == "lease_released"  ? "released"
               : ended_->event == "lease_revoked" ? "revoked"
                                                  : "expired";
    }
    // Its time is not over: the event that ended it is on its way here, or the nodes could not be asked.
    if (!granted_ || !whole || (runs_until_ && *runs_until_ > system_clock::now())) return "unknown";
    return "ran_out";
}

std::string token_story::render(std::string_view resource, std::uint64_t token, bool live, bool whole) const {
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource).number("fencing_token", token);
    if (granted_) {
        out.key("held_by");
        const actor& by = granted_->by;
        http::object_writer(text)
            .text_or_null("principal", by.principal)
            .text_or_null("owner", by.owner)
            .text_or_null("trace_id", by.trace_id)
            .end();
        out.text("granted_at", http::to_rfc3339(granted_->at));
    } else {
        out.null("held_by").null("granted_at");
    }
    const std::string_view how = end(live, whole);
    out.text("end", how);
    const auto when = ended_ ? std::optional(ended_->at) : how == "ran_out" ? runs_until_ : std::nullopt;
    if (when) {
        out.text("ended_at", http::to_rfc3339(*when));
    } else {
        out.null("ended_at");
    }
    out.raw("end_detail", ended_ && !ended_->detail.empty() ? ended_->detail : "null");
    out.number("renewals", renewals_).number("writes_applied", applied_);
    out.number("writes_rejected", rejected_).number("writes_failed", failed_);
    out.boolean("complete", whole && events_ == static_cast<std::int64_t>(shown_.size())).key("events");
    append_history_items(text, shown_);
    out.end();
    return text;
}

}  // namespace fencegate::api
