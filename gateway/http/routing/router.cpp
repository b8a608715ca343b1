#include <gateway/http/routing/router.hpp>

#include <gateway/runtime/text.hpp>

#include <array>
#include <span>
#include <stdexcept>

namespace fencegate::http {
namespace {

/// Maximum number of segments of a path; no template has more, so a longer path is not found.
constexpr std::size_t segments_max = 8;

struct split_path {
    std::array<std::string_view, segments_max> parts;
    std::size_t count = 0;
    bool too_long = false;
};

split_path split_segments(std::string_view path) {
    split_path out;
    if (path.empty() || path.front() != '/') {
        out.too_long = true;
        return out;
    }
    path.remove_prefix(1);
    while (true) {
        if (out.count == segments_max) {
            out.too_long = true;
            return out;
        }
        const std::size_t slash = path.find('/');
        out.parts[out.count++] = path.substr(0, slash);
        if (slash == std::string_view::npos) return out;
        path.remove_prefix(slash + 1);
    }
}

void add_allowed(std::string& allow, method verb) {
    if (!allow.empty()) allow += ", ";
    allow += to_string(verb);
    if (verb == method::get) allow += ", HEAD";
}

}  // namespace

router::router(std::vector<route> routes) : routes_(std::move(routes)) {
    for (const route& r : routes_) {
        const split_path parts = split_segments(r.path);
        if (parts.too_long) throw std::logic_error("route with an invalid path: " + r.path);
        auto& segments = templates_.emplace_back();
        for (const std::string_view part : std::span(parts.parts).first(parts.count)) {
            const bool placeholder = part.size() > 2 && part.front() == '{' && part.back() == '}';
            segments.push_back({std::string(part), placeholder});
        }
    }
    for (std::size_t i = 0; i < routes_.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (routes_[i].verb == routes_[j].verb && routes_[i].path == routes_[j].path) {
                throw std::logic_error("two routes with the same method and path: " + routes_[i].path);
            }
        }
    }
}

router::match router::find(method verb, std::string_view path) const {
    match out;
    const split_path raw = split_segments(path);
    std::array<std::string, segments_max> parts;
    for (std::size_t i = 0; i < raw.count; ++i) {
        auto decoded = runtime::percent_decode(raw.parts[i]);
        if (!decoded) {
            out.kind = outcome::malformed;
            return out;
        }
        parts[i] = std::move(*decoded);
    }
    if (raw.too_long) return out;

    const method wanted = verb == method::head ? method::get : verb;
    for (std::size_t r = 0; r < routes_.size(); ++r) {
        const auto& segments = templates_[r];
        if (segments.size() != raw.count) continue;
        bool fits = true;
        for (std::size_t i = 0; i < segments.size() && fits; ++i) {
            fits = segments[i].placeholder ? !parts[i].empty() : segments[i].text == parts[i];
        }
        if (!fits) continue;
        if (routes_[r].verb != wanted) {
            add_allowed(out.allow, routes_[r].verb);
            continue;
        }
        out.kind = outcome::found;
        out.target = &routes_[r];
        out.allow.clear();
        for (std::size_t i = 0; i < segments.size(); ++i) {
            if (segments[i].placeholder) out.parameters.push_back(std::move(parts[i]));
        }
        return out;
    }
    if (out.allow.empty()) return out;
    out.kind = verb == method::options ? outcome::options : outcome::method_not_allowed;
    out.allow += ", OPTIONS";
    return out;
}

}  // namespace fencegate::http
