//! Natural order of names: `img2` before `img10`.

use std::cmp::Ordering;

/// Compares runs of digits by their value and everything else byte by byte; a total order, equal only for equal names.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].is_ascii_digit() && b[j].is_ascii_digit() {
            let (x, y) = (digits(&a[i..]), digits(&b[j..]));
            let (x_value, y_value) = (without_zeros(x), without_zeros(y));
            let order = x_value.len().cmp(&y_value.len()).then_with(|| x_value.cmp(y_value));
            if order.is_ne() {
                return order;
            }
            i += x.len();
            j += y.len();
        } else {
            let order = a[i].cmp(&b[j]);
            if order.is_ne() {
                return order;
            }
            i += 1;
            j += 1;
        }
    }
    // The rests differ in length only; names that differ in leading zeros alone are told apart by their bytes.
    (a.len() - i).cmp(&(b.len() - j)).then_with(|| a.cmp(b))
}

fn digits(s: &[u8]) -> &[u8] {
    let len = s.iter().take_while(|c| c.is_ascii_digit()).count();
    &s[..len]
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|c| **c == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_count_by_value() {
        let sorted = [
            "",
            "0",
            "00",
            "01",
            "1",
            "2",
            "10",
            "a",
            "a1b",
            "a1c",
            "a02",
            "a2",
            "a2b1",
            "a10",
            "a100000000000000000000000",
            "b",
        ];
        for turn in 0..sorted.len() {
            let mut names: Vec<&str> = sorted.iter().rev().copied().collect();
            names.rotate_left(turn);
            names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
            assert_eq!(names, sorted);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_total_order(names in prop::collection::vec("[a01./]{0,6}", 3)) {
            let order = |i: usize, j: usize| compare(names[i].as_bytes(), names[j].as_bytes());
            prop_assert_eq!(order(0, 1), order(1, 0).reverse());
            prop_assert_eq!(order(0, 1).is_eq(), names[0] == names[1]);
            if order(0, 1).is_le() && order(1, 2).is_le() {
                prop_assert!(order(0, 2).is_le());
            }
        }
    }
}
