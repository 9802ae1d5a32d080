import pytest

from herd.core.errors import (
    BY_CODE,
    FrameTooLarge,
    InvalidParams,
    InvalidRpc,
    MethodNotFound,
    ParseError,
    QueueFull,
    from_wire,
)
from herd.core.limits import METHOD_CHARACTERS, RPC_ID_CHARACTERS, SAFE_INTEGER
from herd.rpc import messages
from herd.rpc.frames import FrameDecoder, encode
from herd.rpc.messages import Failure, Notification, Request, Success, parse

WIRE_ERROR = {"code": -32000, "message": "SCOPE_DENIED: no", "data": {"code": "SCOPE_DENIED"}}
IDS = [None, 0, -1, SAFE_INTEGER, -SAFE_INTEGER, "", "a", "é" * RPC_ID_CHARACTERS]
NO_IDS = [
    True,
    False,
    1.0,
    SAFE_INTEGER + 1,
    -SAFE_INTEGER - 1,
    [],
    {},
    "x" * (RPC_ID_CHARACTERS + 1),
    "\ud800",
]


def call(**members):
    return {"jsonrpc": "2.0", "id": 1, "method": "peer.send", "params": {}} | members


def without(frame, name):
    return {key: value for key, value in frame.items() if key != name}


class TestTheFourShapes:
    @pytest.mark.parametrize("request_id", IDS)
    def test_a_request_has_an_id(self, request_id):
        assert parse(call(id=request_id)) == Request(request_id, "peer.send", {})

    def test_a_notification_has_none(self):
        assert parse(without(call(params={"a": 1}), "id")) == Notification("peer.send", {"a": 1})

    def test_params_may_be_absent(self):
        assert parse(without(call(), "params")) == Request(1, "peer.send", {})

    @pytest.mark.parametrize("method", ["x", "é" * METHOD_CHARACTERS, " ", "\n"])
    def test_a_method_has_1_to_128_characters(self, method):
        assert parse(call(method=method)).method == method

    @pytest.mark.parametrize("request_id", IDS)
    @pytest.mark.parametrize("result", [{}, None, 0, [], "x", {"error": 1}])
    def test_a_success_has_an_id_and_a_result(self, request_id, result):
        assert parse({"jsonrpc": "2.0", "id": request_id, "result": result}) == Success(request_id, result)

    @pytest.mark.parametrize("request_id", IDS)
    @pytest.mark.parametrize("error", [WIRE_ERROR, {"code": 0, "message": ""}, WIRE_ERROR | {"data": None}])
    def test_a_failure_has_an_id_and_an_error(self, request_id, error):
        assert parse({"jsonrpc": "2.0", "id": request_id, "error": error}) == Failure(request_id, error)


class TestEveryOtherShape:
    @pytest.mark.requirement("A-frames-05")
    @pytest.mark.parametrize(
        "frame",
        [
            {},
            {"jsonrpc": "2.0"},
            {"jsonrpc": "2.0", "id": 1},
            {"jsonrpc": "2.0", "params": {}},
            call(method=""),
            call(method="x" * (METHOD_CHARACTERS + 1)),
            call(method=None),
            call(method=1),
            call(method="a\ud800"),
            call(params=None),
            call(params=[]),
            call(params="x"),
            call(result={}),
            call(error=WIRE_ERROR),
            call(more=1),
            *[call(id=wrong) for wrong in NO_IDS],
            {"jsonrpc": "2.0", "result": {}},
            {"jsonrpc": "2.0", "error": WIRE_ERROR},
            {"jsonrpc": "2.0", "id": 1, "result": {}, "error": WIRE_ERROR},
            {"jsonrpc": "2.0", "id": 1, "result": {}, "more": 1},
            *[{"jsonrpc": "2.0", "id": wrong, "result": {}} for wrong in NO_IDS],
            *[{"jsonrpc": "2.0", "id": wrong, "error": WIRE_ERROR} for wrong in NO_IDS],
            *[
                {"jsonrpc": "2.0", "id": 1, "error": error}
                for error in (
                    None,
                    [],
                    "no",
                    {},
                    {"code": 1},
                    {"message": "m"},
                    {"code": "1", "message": "m"},
                    {"code": 1.0, "message": "m"},
                    {"code": True, "message": "m"},
                    {"code": 1, "message": None},
                    {"code": 1, "message": "m", "more": 1},
                )
            ],
        ],
        ids=lambda frame: ascii(frame)[:80],
    )
    def test_it_is_invalid(self, frame):
        # The four shapes themselves are proved beside it, so that not everything is refused.
        assert parse(call()) == Request(1, "peer.send", {})
        assert parse(without(call(), "id")) == Notification("peer.send", {})
        assert parse({"jsonrpc": "2.0", "id": None, "result": 0}) == Success(None, 0)
        assert parse({"jsonrpc": "2.0", "id": "1", "error": WIRE_ERROR}) == Failure("1", WIRE_ERROR)
        with pytest.raises(InvalidRpc):
            parse(frame)

    @pytest.mark.parametrize("version", ["1.0", "2", "2.0 ", 2.0, 2, None, ["2.0"]])
    def test_another_json_rpc_is_invalid_and_no_matter_of_our_protocol(self, version):
        for frame in (call(jsonrpc=version), {"jsonrpc": version, "id": 1, "result": {}}):
            with pytest.raises(InvalidRpc, match=r"jsonrpc is not '2\.0'"):
                parse(frame)
        with pytest.raises(InvalidRpc):
            parse(without(call(), "jsonrpc"))


class TestBuilding:
    def test_what_is_built_is_read_back(self):
        refusal = QueueFull("the inbox is full", retry_after_ms=250)

        assert parse(messages.request(7, "peer.send", {"a": 1})) == Request(7, "peer.send", {"a": 1})
        assert parse(messages.notification("m", {})) == Notification("m", {})
        assert parse(messages.success("x", {"a": 1})) == Success("x", {"a": 1})
        assert parse(messages.failure(None, refusal)) == Failure(None, refusal.to_wire())

    @pytest.mark.requirement("A-errors-02")
    @pytest.mark.parametrize("code", sorted(BY_CODE))
    def test_a_refusal_carries_its_number_and_its_code_in_the_data(self, code):
        numbers = {"PARSE_ERROR": -32700, "METHOD_NOT_FOUND": -32601, "INVALID_PARAMS": -32602}

        sent = messages.failure(1, BY_CODE[code]("why"))
        [received] = FrameDecoder(65_536).feed(encode(sent, 65_536))

        assert received["error"]["code"] == numbers.get(code, -32000)
        assert received["error"]["data"]["code"] == code
        assert received["error"]["message"] == f"{code}: why"
        assert type(from_wire(parse(received).error)) is BY_CODE[code]

    @pytest.mark.parametrize("kind", [ParseError, InvalidRpc, FrameTooLarge, MethodNotFound, InvalidParams])
    def test_a_frame_that_could_not_be_read_is_answered_under_id_null(self, kind):
        assert messages.failure(None, kind("why"))["id"] is None
