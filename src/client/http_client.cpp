#include "client/http_client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cctype>

namespace linkcpp::client {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using Error = boost::system::error_code;

namespace {

constexpr size_t piece_bytes = 256 << 10;
constexpr std::chrono::milliseconds look_around{50};  // how soon a wish to stop is seen
constexpr uint32_t max_header_bytes = 64 << 10;

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower;
}

bool is_malformed(const Error& error) {
    return error.category() == http::make_error_code(http::error::bad_method).category();
}

}  // namespace

const std::string& HttpAnswer::header(const std::string& lower_case_name) const {
    static const std::string none;
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? none : found->second;
}

struct HttpClient::Impl {
    using Plain = beast::tcp_stream;
    using Secure = beast::ssl_stream<beast::tcp_stream>;
    using Parser = http::response_parser<http::buffer_body>;

    Impl(HubUrl u, HttpSettings s) : url(std::move(u)), settings(std::move(s)) {}

    // Every asynchronous operation is started and waited for here, so that limits and the wish to stop hold for it.
    template <typename Start>
    Error wait(Start&& start) {
        Error result = asio::error::operation_aborted;
        if (stopped()) return result;
        io.restart();
        start([&result](const Error& error, auto&&...) { result = error; });
        while (!io.stopped()) {
            io.run_for(look_around);
            if (stopped() && (plain || tls)) socket().cancel();
        }
        return result;
    }
    bool stopped() const { return settings.stop != nullptr && *settings.stop; }
    Plain& socket() { return tls ? beast::get_lowest_layer(*tls) : *plain; }
    template <typename Use>
    auto with_stream(Use&& use) {
        return tls ? use(*tls) : use(*plain);
    }
    void close() {
        if (plain || tls) {
            Error ignored;
            socket().socket().close(ignored);
        }
        plain.reset();
        tls.reset();
        buffer.clear();
    }

    Status error(const Error& error, const std::string& doing) const {
        const std::string place = url.str() + ": ";
        if (stopped()) return {Code::unavailable, place + "stopped"};
        if (error == beast::error::timeout) return {Code::timeout, place + "no answer while " + doing};
        if (is_malformed(error) && error != http::error::end_of_stream && error != http::error::partial_message)
            return {Code::corrupt, place + "what answers there is no hub (" + error.message() + ")"};
        return {Code::unavailable, place + doing + ": " + error.message()};
    }

    Status connect() {
        close();
        tcp::resolver resolver(io);
        tcp::resolver::results_type found;
        // Resolving has no limit of its own in Asio; the system's is a few seconds.
        Error failed = wait([&](auto done) {
            resolver.async_resolve(url.host, std::to_string(url.port), [&, done](const Error& e, auto results) {
                found = results;
                done(e);
            });
        });
        if (failed) return error(failed, "looking up its name");
        if (url.tls)
            LINKCPP_TRY(make_tls());
        else
            plain.emplace(io);
        socket().expires_after(settings.connect_limit);
        failed = wait([&](auto done) { socket().async_connect(found, done); });
        if (failed) return dropped(failed, "connecting");
        socket().socket().set_option(tcp::no_delay(true), failed);
        if (tls) {
            failed = wait([&](auto done) { tls->async_handshake(asio::ssl::stream_base::client, done); });
            if (failed) return dropped(failed, "checking its certificate");
        }
        return {};
    }
    Status dropped(const Error& failed, const char* doing) {
        close();
        return error(failed, doing);
    }
    Status make_tls() {
        if (!context) {
            context.emplace(asio::ssl::context::tls_client);
            Error failed;
            if (settings.ca_file.empty())
                context->set_default_verify_paths(failed);
            else
                context->load_verify_file(settings.ca_file, failed);
            if (failed) return {Code::io, settings.ca_file + ": " + failed.message()};
            context->set_verify_mode(asio::ssl::verify_peer);
        }
        tls.emplace(io, *context);
        tls->set_verify_callback(asio::ssl::host_name_verification(url.host));
        SSL_set_tlsext_host_name(tls->native_handle(), url.host.c_str());
        return {};
    }

    Result<HttpAnswer> exchange(const HttpRequest& asked, const BodySink& sink, bool& fresh) {
        const Duration limit = asked.silence_limit.value_or(settings.silence_limit);
        http::request<http::string_body> request(http::string_to_verb(asked.method), asked.target, 11);
        request.set(http::field::host, net_host());
        request.set(http::field::user_agent, "linkcpp " LINKCPP_VERSION);
        for (const auto& [name, value] : asked.headers)
            request.set(name, value);
        request.body() = asked.body;
        request.prepare_payload();

        socket().expires_after(limit);
        Error failed =
            wait([&](auto done) { with_stream([&](auto& stream) { http::async_write(stream, request, done); }); });
        if (failed) return dropped(failed, "asking");
        Parser parser;
        parser.header_limit(max_header_bytes);
        parser.body_limit(boost::none);
        parser.skip(asked.method == "HEAD");
        socket().expires_after(limit);
        failed = wait([&](auto done) {
            with_stream([&](auto& stream) { http::async_read_header(stream, buffer, parser, done); });
        });
        if (failed) return dropped(failed, "waiting for its answer");
        fresh = true;  // it has answered: a failure from now on is no old connection's

        HttpAnswer answer;
        answer.status = static_cast<int>(parser.get().result_int());
        for (const auto& field : parser.get())
            answer.headers[lower_case({field.name_string().data(), field.name_string().size()})] =
                std::string(field.value());
        const BodySink& into = answer.ok() ? sink : no_sink;
        const auto length = parser.content_length();
        if (length && !parser.chunked() && !parser.is_done())
            LINKCPP_TRY(read_body_of(*length, answer, into, limit));
        else
            LINKCPP_TRY(read_body(parser, answer, into, limit));
        if (!parser.keep_alive()) close();
        return answer;
    }
    /// The common case, past Beast, whose reads are as small as what its buffer happens to hold.
    Status read_body_of(uint64_t length, HttpAnswer& answer, const BodySink& sink, Duration limit) {
        piece.resize(piece_bytes);
        while (length > 0) {
            size_t n = static_cast<size_t>(std::min<uint64_t>(length, piece.size()));
            const asio::mutable_buffer room(piece.data(), n);
            Error failed;
            if (buffer.size() > 0) {  // came with the header
                n = asio::buffer_copy(room, buffer.data());
                buffer.consume(n);
            } else {
                socket().expires_after(limit);
                failed = wait([&](auto done) {
                    with_stream([&](auto& stream) {
                        stream.async_read_some(room, [&n, done](const Error& e, size_t got) mutable {
                            n = got;
                            done(e);
                        });
                    });
                });
            }
            if (failed) return dropped(failed, "sending its answer");
            const Status taken = take(answer, sink, ByteSpan(piece).first(n));
            if (!taken.ok()) {
                close();
                return taken;
            }
            length -= n;
        }
        return {};
    }
    Status read_body(Parser& parser, HttpAnswer& answer, const BodySink& sink, Duration limit) {
        piece.resize(piece_bytes);
        while (!parser.is_done()) {
            parser.get().body().data = piece.data();
            parser.get().body().size = piece.size();
            socket().expires_after(limit);
            Error failed = wait([&](auto done) {
                with_stream([&](auto& stream) { http::async_read_some(stream, buffer, parser, done); });
            });
            if (failed == http::error::need_buffer) failed = {};
            const ByteSpan got(piece.data(), piece.size() - parser.get().body().size);
            if (!got.empty()) {
                const Status taken = take(answer, sink, got);
                if (!taken.ok()) {
                    close();
                    return taken;
                }
            }
            if (failed) return dropped(failed, "sending its answer");
        }
        return {};
    }
    Status take(HttpAnswer& answer, const BodySink& sink, ByteSpan got) const {
        if (sink) return sink(answer, got);
        if (answer.text.size() + got.size() > settings.max_text)
            return {Code::exhausted, url.str() + ": an answer larger than expected"};
        answer.text.append(got.begin(), got.end());
        return {};
    }
    std::string net_host() const {
        const bool v6 = url.host.find(':') != std::string::npos;
        return (v6 ? "[" + url.host + "]" : url.host) + ":" + std::to_string(url.port);
    }

    Result<HttpAnswer> run(const HttpRequest& request, const BodySink& sink) {
        bool fresh = !plain && !tls;
        if (fresh) LINKCPP_TRY(connect());
        Result<HttpAnswer> answer = exchange(request, sink, fresh);
        // A connection that was kept may have been closed by the hub meanwhile, before it saw this request.
        if (answer.ok() || fresh || answer.status().code() != Code::unavailable || stopped()) return answer;
        LINKCPP_TRY(connect());
        return exchange(request, sink, fresh);
    }

    const HubUrl url;
    const HttpSettings settings;
    asio::io_context io;
    std::optional<asio::ssl::context> context;
    std::optional<Plain> plain;
    std::optional<Secure> tls;
    const BodySink no_sink;
    beast::flat_buffer buffer;
    Bytes piece;
};

HttpClient::HttpClient(HubUrl url, HttpSettings settings)
    : impl_(std::make_unique<Impl>(std::move(url), std::move(settings))) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;

const HubUrl& HttpClient::url() const { return impl_->url; }
Result<HttpAnswer> HttpClient::call(const HttpRequest& request) { return impl_->run(request, {}); }
Result<HttpAnswer> HttpClient::stream(const HttpRequest& request, const BodySink& sink) {
    return impl_->run(request, sink);
}

}  // namespace linkcpp::client
