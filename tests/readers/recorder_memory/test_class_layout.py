"""Where fields lie, by declarations as they stand in headers."""

from __future__ import annotations

import pytest

from hangdoctor.readers.recorder_memory.class_layout import UnknownClass, layout_of

HEADER = """
#pragma once
namespace ns {
struct Small { bool only_; };
template <typename T>
struct Ring {
  static Ring<T>* get() {
    static Ring<T>* instance = new Ring<T>();
    return instance;
  }
  Ring() {
    most_ = 3;
  }
  using visit = int (*)(void* self, void* arg);
  struct Row {
    size_t id_; // its number
    bool first_; /* of
      a batch */
    std::tuple<std::string, std::string> name_;
    std::shared_ptr<ns::Trace> trace_;
    T *start_, *end_;
    c10::time_t made_;
    std::optional<float> took_;
    bool done_ = false;
    std::optional<c10::time_t> seen_;
    c10::SmallVector<int64_t, 4> dims_;
    std::vector<c10::ScalarType> dtypes_;
    std::thread::id thread_;
    bool last_ = false;
    std::string text() const;
  };
  bool enabled_ = false;
  std::mutex mutex_;
  std::vector<Row> rows_;
  int64_t left_{-1};
  std::map<size_t, std::shared_ptr<Small>>
      by_number_ = {};
  std::optional<size_t> record(size_t id, bool last = false);
};
}
"""


def places(name: str) -> dict[str, int]:
    return {field: at.offset for field, at in layout_of(HEADER, name).fields.items()}


def test_fields_follow_one_another_by_size_and_alignment() -> None:
    assert places("Row") == {
        "id_": 0,
        "first_": 8,
        "name_": 16,
        "trace_": 80,
        "start_": 96,
        "end_": 104,
        "made_": 112,
        "took_": 120,
        "done_": 128,
        "seen_": 136,
        "dims_": 152,
        "dtypes_": 200,
        "thread_": 224,
        "last_": 232,
    }
    assert layout_of(HEADER, "Row").size == 240


def test_functions_and_classes_within_are_no_fields() -> None:
    assert places("Ring") == {
        "enabled_": 0,
        "mutex_": 8,
        "rows_": 48,
        "left_": 72,
        "by_number_": 80,
    }
    assert layout_of(HEADER, "Ring").size == 128
    assert layout_of(HEADER, "Small").size == 1


@pytest.mark.parametrize("name", ["Rin", "Missing"])
def test_another_class_is_not_taken_for_it(name: str) -> None:
    with pytest.raises(UnknownClass):
        layout_of(HEADER, name)


@pytest.mark.parametrize("field", ["std::list<int> rows_;", "ns::Small one_;", "int n_;"])
def test_a_type_of_unknown_size_is_refused(field: str) -> None:
    with pytest.raises(UnknownClass, match="type"):
        layout_of(f"struct A {{ size_t id_; {field} bool b_; }};", "A")


def test_a_class_without_an_end_is_refused() -> None:
    with pytest.raises(UnknownClass):
        layout_of("struct A { size_t id_;", "A")
