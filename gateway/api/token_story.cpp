#include <gateway/api/token_story.hpp>

#include <gateway/api/history_render.hpp>
#include <gateway/http/json_io.hpp>
#include <gateway/http/rfc3339.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <optional>

namespace fencegate::api {
namespace {

using std::chrono::system_clock;

struct story {
    const history_item* granted = nullptr;
    const history_item* ended = nullptr;  ///< The event that says so.
    std::optional<system_clock::time_point> runs_until;
    std::int64_t renewals = 0, applied = 0, rejected = 0, failed = 0;
};

std::optional<std::chrono::milliseconds> ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    if (ttl == nullptr || !ttl->is_int64()) return std::nullopt;
    return std::chrono::milliseconds(ttl->get_int64());
}

story read(const history_page& events) {
    story out;
    for (const history_item& item : events.items) {
        const auto& event = item.event;
        if (event == "lease_granted" || event == "lease_renewed") {
            if (event == "lease_granted" && out.granted == nullptr) out.granted = &item;
            if (event == "lease_renewed") ++out.renewals;
            if (const auto ttl = ttl_of(item)) out.runs_until = item.at + *ttl;
        } else if (event == "lease_released" || event == "lease_revoked" || event == "lease_expired") {
            out.ended = &item;
        } else if (event == "write_applied") {
            ++out.applied;
        } else if (event == "write_rejected") {
            ++out.rejected;
        } else if (event == "write_failed") {
            ++out.failed;
        }
    }
    return out;
}

std::string_view end_of(const story& told, bool live) {
    if (live) return "live";
    if (told.ended == nullptr) return told.granted == nullptr ? "unknown" : "ran_out";
    const std::string_view event = told.ended->event;
    return event == "lease_released" ? "released" : event == "lease_revoked" ? "revoked" : "expired";
}

}  // namespace

std::string render_token_story(std::string_view resource, std::uint64_t token, const history_page& events, bool live) {
    const story told = read(events);
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource).number("fencing_token", token);
    if (told.granted == nullptr) {
        out.null("held_by").null("granted_at");
    } else {
        out.key("held_by");
        const actor& by = told.granted->by;
        http::object_writer(text)
            .text_or_null("principal", by.principal)
            .text_or_null("owner", by.owner)
            .text_or_null("trace_id", by.trace_id)
            .end();
        out.text("granted_at", http::to_rfc3339(told.granted->at));
    }
    const auto time = [&out](std::string_view name, const std::optional<system_clock::time_point>& at) {
        if (at) {
            out.text(name, http::to_rfc3339(*at));
        } else {
            out.null(name);
        }
    };
    const std::string_view end = end_of(told, live);
    out.text("end", end);
    time("ended_at", told.ended != nullptr ? std::optional(told.ended->at)
                     : end == "ran_out"    ? told.runs_until
                                           : std::nullopt);
    if (told.ended != nullptr && !told.ended->detail.empty()) {
        out.raw("end_detail", told.ended->detail);
    } else {
        out.null("end_detail");
    }
    out.number("renewals", told.renewals).number("writes_applied", told.applied);
    out.number("writes_rejected", told.rejected).number("writes_failed", told.failed);
    out.boolean("complete", !events.more).key("events");
    append_history_items(text, events.items);
    out.end();
    return text;
}

}  // namespace fencegate::api
