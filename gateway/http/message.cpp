#include <gateway/http/message.hpp>

#include <array>

namespace fencegate::http {
namespace {

constexpr std::array<std::pair<std::string_view, method>, 7> methods{{{"GET", method::get},
                                                                      {"POST", method::post},
                                                                      {"PATCH", method::patch},
                                                                      {"PUT", method::put},
                                                                      {"DELETE", method::del},
                                                                      {"HEAD", method::head},
                                                                      {"OPTIONS", method::options}}};

}  // namespace

std::string_view to_string(method m) {
    for (const auto& [name, value] : methods) {
        if (value == m) return name;
    }
    return "-";
}

method parse_method(std::string_view text) {
    for (const auto& [name, value] : methods) {
        if (name == text) return value;
    }
    return method::other;
}

const std::shared_ptr<const rights>& no_rights() {
    static const auto none = std::make_shared<const rights>();
    return none;
}

std::string_view request::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (key == name) return value;
    }
    return {};
}

std::string request::header_list(std::string_view name) const {
    std::string out;
    for (const auto& [key, value] : headers) {
        if (key != name) continue;
        if (!out.empty()) out += ", ";
        out += value;
    }
    return out;
}

bool request::has_header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (key == name) return true;
    }
    return false;
}

}  // namespace fencegate::http
