#pragma once
// A worker that lies, dies or stalls at a named point: a link in front of an honest worker's process that speaks the
// protocol, so that what the backbone meets is real in everything but the fault.

#include "net/tcp.h"
#include "wire/messages.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace linkcpp::test {

/// What happens to an answer. Lies are told from there on; the worker or its link breaks once, and for good.
enum class LinkFault {
    nan,             ///< one number is not a number
    wrong_number,    ///< one number is another one
    zeros,           ///< all numbers are 0
    another_expert,  ///< the rows are those of the expert's neighbour
    shorter,         ///< a row is missing
    longer,          ///< a row too many
    duplicate,       ///< each tile comes twice
    dies,            ///< the connection ends instead of the answer, and nobody listens any more
    dies_in_frame,   ///< the same in the middle of a tile
    stalls,          ///< nothing comes any more
    stalls_in_frame,
};

class FaultyLink {
  public:
    /// Answers before `first_answer` (counted over all connections) pass as they are.
    FaultyLink(const std::string& worker, LinkFault fault, int first_answer) : fault_(fault), left_(first_answer) {
        const net::Address target = *net::Address::parse(worker);
        network_.loop().run([&] {
            auto listener = network_.listen({"127.0.0.1", 0}, [this, target](std::unique_ptr<net::Link> client) {
                connections_.push_back(std::make_unique<Connection>(*this, std::move(client)));
                connections_.back()->reach(target);
            });
            listener_ = std::move(*listener);
            address_ = listener_->address().str();
        });
    }
    ~FaultyLink() {
        network_.loop().run([this] {
            connections_.clear();
            listener_.reset();
        });
    }
    FaultyLink(const FaultyLink&) = delete;
    FaultyLink& operator=(const FaultyLink&) = delete;

    const std::string& address() const { return address_; }
    /// Did an answer meet the fault?
    bool happened() const { return happened_; }

  private:
    struct Connection {
        Connection(FaultyLink& link, std::unique_ptr<net::Link> c)
            : owner(link), client(std::move(c)), requests(wire::max_payload_limit), answers(wire::max_payload_limit) {
            client->on_bytes = [this](ByteSpan bytes) { owner.pass(*this, bytes, true); };
            client->on_closed = [this](const Status&) { end(); };
            client->set_reading(false);
        }
        void reach(const net::Address& target) {
            owner.network_.connect(target, std::chrono::seconds(5),
                                   [this, alive = alive](Result<std::unique_ptr<net::Link>> link) {
                                       if (!*alive) return;
                                       if (!link.ok()) return end();
                                       worker = std::move(*link);
                                       worker->on_bytes = [this](ByteSpan bytes) { owner.pass(*this, bytes, false); };
                                       worker->on_closed = [this](const Status&) { end(); };
                                       client->set_reading(true);
                                   });
        }
        void end() {
            if (client) client->close();
            if (worker) worker->close();
        }
        ~Connection() { *alive = false; }

        FaultyLink& owner;
        std::unique_ptr<net::Link> client, worker;
        wire::FrameReader requests, answers;
        bool stalled = false;
        std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    };

    void pass(Connection& connection, ByteSpan bytes, bool is_request) {
        wire::FrameReader& reader = is_request ? connection.requests : connection.answers;
        reader.feed(bytes);
        while (!connection.stalled) {
            auto frame = reader.next();
            if (!frame.ok()) return connection.end();
            if (!*frame) return;
            is_request ? pass_request(connection, **frame) : pass_answer(connection, **frame);
        }
    }
    static Bytes whole(const wire::Frame& frame) {
        Bytes bytes(wire::header_bytes + frame.payload.size());
        std::copy(frame.payload.begin(), frame.payload.end(), bytes.begin() + wire::header_bytes);
        wire::seal_frame(frame.header, bytes);
        return bytes;
    }

    void pass_request(Connection& connection, const wire::Frame& frame) {
        if (fault_ == LinkFault::another_expert && frame.header.type == wire::FrameType::compute && left_ <= 0) {
            auto compute = wire::decode_compute(frame);
            for (uint32_t& expert : compute->expert)
                expert ^= 1;
            return connection.worker->send(wire::encode(frame.header, *compute));
        }
        connection.worker->send(whole(frame));
    }

    void pass_answer(Connection& connection, const wire::Frame& frame) {
        if (frame.header.type != wire::FrameType::result || left_-- > 0) return connection.client->send(whole(frame));
        happened_ = true;
        switch (fault_) {
            case LinkFault::dies:
            case LinkFault::dies_in_frame:
                listener_.reset();
                if (fault_ == LinkFault::dies_in_frame) connection.client->send(part(frame));
                connection.stalled = true;
                connection.client->close(true);
                connection.worker->close();
                return;
            case LinkFault::stalls_in_frame: connection.client->send(part(frame)); [[fallthrough]];
            case LinkFault::stalls: connection.stalled = true; return;
            case LinkFault::duplicate: connection.client->send(whole(frame)); [[fallthrough]];
            case LinkFault::another_expert: return connection.client->send(whole(frame));
            default: return connection.client->send(falsified(frame));
        }
    }
    static Bytes part(const wire::Frame& frame) {
        Bytes bytes = whole(frame);
        bytes.resize(bytes.size() - frame.payload.size() / 2);
        return bytes;
    }
    Bytes falsified(const wire::Frame& frame) const {
        const auto tile = wire::decode_result(frame);
        std::vector<float> rows(tile->rows.size() / sizeof(float));
        std::memcpy(rows.data(), tile->rows.data(), tile->rows.size());
        wire::FrameHeader header = frame.header;
        switch (fault_) {
            case LinkFault::nan: rows.back() = std::numeric_limits<float>::quiet_NaN(); break;
            case LinkFault::wrong_number: rows.back() = rows.back() * 1.5f + 1; break;
            case LinkFault::zeros: rows.assign(rows.size(), 0.0f); break;
            case LinkFault::shorter: rows.resize(rows.size() - tile->n_out); break;
            case LinkFault::longer: rows.resize(rows.size() + tile->n_out); break;
            default: break;
        }
        header.rows = static_cast<uint32_t>(rows.size() / tile->n_out);
        return wire::encode_result(header, tile->queue_us, tile->compute_us, tile->n_out, rows);
    }

    const LinkFault fault_;
    int left_;
    std::string address_;
    std::atomic<bool> happened_{false};
    net::TcpNetwork network_;
    std::unique_ptr<net::Listener> listener_;
    std::list<std::unique_ptr<Connection>> connections_;
};

}  // namespace linkcpp::test
