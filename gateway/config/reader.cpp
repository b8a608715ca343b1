#include <gateway/config/reader.hpp>

#include <gateway/config/nearest_name.hpp>
#include <gateway/config/secrets.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

namespace fencegate::config_reader {
namespace {

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) {
        if (!text.empty()) text += ", ";
        text += name;
    }
    return text;
}

std::string child_path(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
}

}  // namespace

void fault_list::add(const std::string& path, const std::string& detail) {
    if (paths_.insert(path).second) faults_.push_back(path + ": " + detail);
}

void fault_list::check_permissions(const std::string& path, const std::filesystem::path& file) {
    const auto fault = find_permissions_fault(file);
    if (fault && std::ranges::none_of(warnings_, [&](const auto& earlier) { return earlier.ends_with(*fault); }))
        warnings_.push_back(path + ": " + *fault);
}

bool fault_list::covers(std::string_view path) const {
    while (!path.empty()) {
        if (paths_.contains(path)) return true;
        const auto cut = path.find_last_of('.');
        path = cut == std::string_view::npos ? std::string_view{} : path.substr(0, cut);
    }
    return false;
}

field reloadable(std::string key, read_value read) {
    return {std::move(key), std::move(read), false, true};
}

read_value mapping(std::vector<field> rows) {
    const auto shared = std::make_shared<const std::vector<field>>(std::move(rows));
    read_value out([shared](const YAML::Node& node, const std::string& path, fault_list& faults) {
        const std::vector<field>& fields = *shared;
        std::set<std::string> seen;
        if (node.IsMap()) {
            for (const auto& entry : node) {
                if (!entry.first.IsScalar()) {
                    faults.add(path.empty() ? "configuration" : path, "has a key that is not a scalar");
                    continue;
                }
                const std::string key = entry.first.Scalar();
                const auto known =
                    std::find_if(fields.begin(), fields.end(), [&](const field& f) { return f.key == key; });
                if (known == fields.end()) {
                    std::vector<std::string> names;
                    for (const auto& each : fields)
                        names.push_back(each.key);
                    const auto suggestion = nearest_name(key, names);
                    faults.add(child_path(path, key),
                               "unknown key" + (suggestion ? "; did you mean " + *suggestion + "?"
                                                           : "; known here: " + joined(names)));
                } else if (!seen.insert(key).second) {
                    faults.add(child_path(path, key),
                               "is given more than once (line " + std::to_string(entry.first.Mark().line + 1) + ")");
                } else {
                    known->read(entry.second, child_path(path, key), faults);
                }
            }
        } else if (!node.IsNull()) {
            faults.add(path.empty() ? "configuration" : path, "must be a mapping of keys to values");
            return;
        }
        for (const auto& each : fields) {
            if (each.required && !seen.contains(each.key)) faults.add(child_path(path, each.key), "is missing");
        }
    });
    out.fields_ = shared;
    return out;
}

void read_value::for_each_key(const read_value& other,
                              const std::function<void(const std::string&, const field&, const field&)>& visit,
                              const std::string& path) const {
    for (std::size_t i = 0; i < fields_->size(); ++i) {
        const field& row = (*fields_)[i];
        const field& other_row = (*other.fields_)[i];
        const std::string row_path = child_path(path, row.key);
        if (row.read.fields_)
            row.read.for_each_key(other_row.read, visit, row_path);
        else
            visit(row_path, row, other_row);
    }
}

read_value list(std::function<void(std::size_t, const YAML::Node&, const std::string&, fault_list&)> item) {
    return [item = std::move(item)](const YAML::Node& node, const std::string& path, fault_list& faults) {
        if (node.IsNull()) return;
        if (!node.IsSequence()) {
            faults.add(path, "must be a list");
            return;
        }
        for (std::size_t i = 0; i < node.size(); ++i)
            item(i, node[i], path + "[" + std::to_string(i) + "]", faults);
    };
}

bool read_scalar(const YAML::Node& node, const std::string& path, fault_list& faults, std::string& value) {
    if (node.IsNull() || (node.IsScalar() && node.Scalar().empty())) {
        faults.add(path, "has no value");
        return false;
    }
    if (!node.IsScalar()) {
        faults.add(path, "must be a single value");
        return false;
    }
    value = node.Scalar();
    // What is after it would be ignored wherever the value is given to a C function: a host, a file name, a conninfo.
    if (value.find('\0') != std::string::npos) {
        faults.add(path, "has a NUL character");
        return false;
    }
    return true;
}

read_value text(std::string& target) {
    return {target, [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::string value;
                if (read_scalar(node, path, faults, value)) target = value;
            }};
}

read_value secret_file(std::string& target, const std::filesystem::path& folder) {
    return {target, [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::string name, fault;
                if (!read_scalar(node, path, faults, name)) return;
                if (auto secret = read_secret(folder / name, fault)) {
                    target = *secret;
                    faults.check_permissions(path, folder / name);
                } else {
                    faults.add(path, fault);
                }
            }};
}

read_value file(named_file& target, const std::filesystem::path& folder, std::size_t bytes_max) {
    return [&target, folder, bytes_max](const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::string name, fault;
        if (!read_scalar(node, path, faults, name)) return;
        if (auto text = read_text_file(folder / name, bytes_max, fault)) {
            target = {folder / name, std::move(*text)};
        } else {
            faults.add(path, fault);
        }
    };
}

read_value boolean(bool& target) {
    return {target, [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::string value;
                if (!read_scalar(node, path, faults, value)) return;
                if (!YAML::convert<bool>::decode(node, target))
                    faults.add(path, "\"" + value + "\" is neither true nor false");
            }};
}

bool read_integer(const YAML::Node& node, const std::string& path, fault_list& faults, std::int64_t least,
                  std::int64_t most, std::int64_t& value) {
    std::string written;
    if (!read_scalar(node, path, faults, written)) return false;
    std::int64_t parsed = 0;
    const char* end = written.data() + written.size();
    const auto [stop, error] = std::from_chars(written.data(), end, parsed);
    const std::string bounds = "between " + std::to_string(least) + " and " + std::to_string(most);
    if (stop != end || error == std::errc::invalid_argument) {
        faults.add(path, "\"" + written + "\" is not an integer " + bounds);
        return false;
    }
    if (error == std::errc::result_out_of_range || parsed < least || parsed > most) {
        faults.add(path, written + " is not " + bounds);
        return false;
    }
    value = parsed;
    return true;
}

read_value duration(std::chrono::milliseconds& target, std::chrono::milliseconds least,
                    std::chrono::milliseconds most) {
    return {target, [&target, least, most](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::int64_t value = 0;
                if (read_integer(node, path, faults, least.count(), most.count(), value))
                    target = std::chrono::milliseconds{value};
            }};
}

std::string describe_unknown_value(std::string_view written, const std::vector<std::string>& names) {
    std::string text = "\"" + std::string(written) + "\" is none of " + joined(names);
    if (const auto suggestion = nearest_name(written, names)) text += "; did you mean " + *suggestion + "?";
    return text;
}

}  // namespace fencegate::config_reader
